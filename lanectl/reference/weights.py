"""The model's shape and its weights, made from a seed.

Every matrix has a random stream of its own, named by (seed, kind, layer, expert), so that a process which needs
only some of the experts makes exactly those, and gets the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# The kinds of random streams. The numbers are part of the model: changing one changes every answer.
_EMBEDDING, _POSITION, _ATTENTION_IN, _ATTENTION_OUT, _ROUTER, _EXPERT_UP, _EXPERT_DOWN, _HEAD = range(8)

# Scales of the random matrices, chosen so that a greedy text does not fall into a loop, and so that the experts
# carry a good part of what decides a token (a missing expert must change the answer).
_POSITION_SCALE = 1.0
_ATTENTION_SCALE = 1.5
_ROUTER_SCALE = 2.0
_EXPERT_SCALE = 2.5
_HEAD_SCALE = 3.0


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. All of them are multiples of 16, the width of the widest float32 vector register in
    use, so that no row ever ends in a partly filled register."""

    layers: int
    hidden: int
    heads: int
    head_dim: int
    experts: int
    picked: int
    expert_hidden: int


SHAPES = {
    "tiny": Shape(layers=2, hidden=64, heads=2, head_dim=32, experts=16, picked=2, expert_hidden=32),
    "small": Shape(layers=4, hidden=128, heads=4, head_dim=32, experts=48, picked=4, expert_hidden=32),
}


@dataclass(frozen=True)
class LayerWeights:
    """One layer without its experts: what goes into attention and router, side by side, (hidden,
    (heads + 2) x head_dim + experts), and what comes out of attention, (heads x head_dim, hidden)."""

    into: Floats
    out: Floats


@dataclass(frozen=True)
class Weights:
    """What every placement keeps in fast memory. The output head is a matrix of its own (untied)."""

    embedding: Floats
    positions: Floats
    layers: tuple[LayerWeights, ...]
    head: Floats

    @property
    def nbytes(self) -> int:
        """Bytes all of it takes."""
        arrays = [self.embedding, self.positions, self.head]
        for layer in self.layers:
            arrays += [layer.into, layer.out]
        return sum(array.nbytes for array in arrays)


def make_weights(seed: int, shape: Shape, vocabulary: int, max_positions: int) -> Weights:
    """Given a seed, a shape and the number of tokens and positions, return the weights outside the experts."""
    width = shape.heads * shape.head_dim
    layers = []
    for number in range(shape.layers):
        attention = _matrix((seed, _ATTENTION_IN, number), (shape.hidden, width + 2 * shape.head_dim))
        router = _matrix((seed, _ROUTER, number), (shape.hidden, shape.experts), _ROUTER_SCALE)
        out = _matrix((seed, _ATTENTION_OUT, number), (width, shape.hidden), _ATTENTION_SCALE)
        layers.append(LayerWeights(np.concatenate([attention, router], axis=1), out))
    return Weights(
        embedding=_normal((seed, _EMBEDDING), (vocabulary, shape.hidden)),
        positions=_positions(seed, max_positions, shape.hidden),
        layers=tuple(layers),
        head=_matrix((seed, _HEAD), (shape.hidden, vocabulary), _HEAD_SCALE),
    )


def make_expert(seed: int, shape: Shape, layer: int, expert: int) -> tuple[Floats, Floats]:
    """Given a seed and the place of an expert, return its two matrices: up (hidden, 2 x expert_hidden; the gate
    first) and down (expert_hidden, hidden)."""
    up = _matrix((seed, _EXPERT_UP, layer, expert), (shape.hidden, 2 * shape.expert_hidden))
    down = _matrix((seed, _EXPERT_DOWN, layer, expert), (shape.expert_hidden, shape.hidden), _EXPERT_SCALE)
    return up, down


def _normal(stream: tuple[int, ...], size: tuple[int, int]) -> Floats:
    return np.random.default_rng(stream).standard_normal(size, dtype=np.float32)


def _matrix(stream: tuple[int, ...], size: tuple[int, int], scale: float = 1.0) -> Floats:
    """A random matrix that keeps the size of what it is applied to: variance 1 / rows, times scale squared."""
    return _normal(stream, size) * np.float32(scale / size[0] ** 0.5)


def _positions(seed: int, count: int, hidden: int) -> Floats:
    """Random Fourier features: every position gets a vector of its own, with mean square 1, and position p has the
    same vector whatever the longest context is. Frequencies are uniform, so that neighbours differ as well."""
    stream = np.random.default_rng((seed, _POSITION))
    frequency = stream.uniform(0.1, np.pi, hidden)
    phase = stream.uniform(0.0, 2 * np.pi, hidden)
    angle = np.arange(count)[:, None] * frequency[None, :] + phase[None, :]
    return (np.cos(angle) * (_POSITION_SCALE * 2**0.5)).astype(np.float32)
