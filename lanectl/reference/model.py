"""The forward pass: rows of tokens in, logits out.

Batch invariance is by construction. A row is one token of one request. Every product of a row with a matrix is a
matrix-vector product of its own with a fixed shape, and its attention is computed alone, over its own context:
nothing a row is computed from depends on which other rows are there, so its bits do not either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lanectl.reference.experts import Experts
from lanectl.reference.kv import KvCache
from lanectl.reference.tally import Tally
from lanectl.reference.weights import Floats, Shape, Weights

_EPSILON = 1e-6  # keeps the norm of a zero row finite
_ROPE_BASE = 10_000.0
_SHARPNESS = 1.5  # times the usual 1 / sqrt(head_dim); queries and keys are normed, so a score is at most
# sqrt(head_dim) x sharpness, 8.5 here, and its exp() safe without taking the largest away first


@dataclass(frozen=True)
class Rows:
    """The rows of one step: token ids, their positions, the cache slot each position is kept in, and the slot
    where the row's own request begins."""

    tokens: NDArray[np.intp]
    positions: NDArray[np.intp]
    slots: NDArray[np.intp]
    bases: list[int]


class Model:
    """A decoder of RMS-normed layers, each with rotary attention (one key/value head) and routed experts side by
    side: both read the layer's input, and both are added to it."""

    def __init__(
        self, shape: Shape, weights: Weights, experts: Experts, head_bias: Floats, tally: Tally | None = None
    ) -> None:
        """`tally`, if given, counts what the router picks."""
        self._shape = shape
        self._weights = weights
        self._experts = experts
        self._head_bias = head_bias
        self._tally = tally
        self._router_at = (shape.heads + 2) * shape.head_dim
        self._rotation = _rotation(len(weights.positions), shape.head_dim)

    def forward(self, rows: Rows, cache: KvCache, wanted: NDArray[np.intp]) -> Floats:
        """Given the rows of a step and the indices of those whose next token is wanted, write the rows' keys and
        values into the cache and return the logits (wanted, vocabulary)."""
        x = self._weights.embedding[rows.tokens] + self._weights.positions[rows.positions]
        rotation = self._rotation[rows.positions][:, None, :]
        for number, layer in enumerate(self._weights.layers):
            normed = _normed(x)
            mixed = _times(normed, layer.into)
            picked, gate = self._route(mixed[:, self._router_at :])
            if self._tally is not None:
                self._tally.add(number, picked)
            attended = self._attend(number, mixed, rows, rotation, cache)
            x += self._experts.run(number, normed, picked, gate)
            x += _times(attended, layer.out)
        return _times(_normed(x[wanted]), self._weights.head) + self._head_bias

    def _attend(
        self, number: int, mixed: Floats, rows: Rows, rotation: NDArray[np.complex64], cache: KvCache
    ) -> Floats:
        """Given what comes out of a layer's input matrix, keep the keys and values and return what the heads read."""
        heads, width = self._shape.heads, self._shape.head_dim
        split = (heads + 1) * width
        turned = _normed(mixed[:, :split].reshape(len(mixed), heads + 1, width))
        turned = (turned.view(np.complex64) * rotation).view(np.float32)
        cache.write(number, rows.slots, turned[:, heads], mixed[:, split : split + width])
        return self._mix(number, turned[:, :heads], rows, cache).reshape(len(mixed), -1)

    def _mix(self, number: int, queries: Floats, rows: Rows, cache: KvCache) -> Floats:
        """Softmax attention, each row over its own positions 0 … its position. The cache keeps a one behind every
        value, so the same product that mixes the values also adds up the softmax's denominator."""
        heads, width = self._shape.heads, self._shape.head_dim
        keys, values = cache.keys[number], cache.values[number]
        spans = [(base, base + at + 1) for base, at in zip(rows.bases, rows.positions.tolist(), strict=True)]
        scores = [np.matmul(queries[row], keys[start:end].T) for row, (start, end) in enumerate(spans)]
        mixed = np.empty((len(spans), heads, values.shape[1]), np.float32)
        for row, (start, end) in enumerate(spans):
            score = scores[row]
            np.exp(score, out=score)
            np.matmul(score, values[start:end], out=mixed[row])
        return np.divide(mixed[:, :, :width], mixed[:, :, width : width + 1])

    def _route(self, scores: Floats) -> tuple[NDArray[np.intp], Floats]:
        """Given the router's scores, return the ids of the picked experts, ascending, and their weights: a softmax
        over the picked ones alone. Its input is normed, so that no score comes near the limit of exp()."""
        picked = np.argsort(scores, axis=1, kind="stable")[:, -self._shape.picked :]
        picked.sort(axis=1)
        chosen = scores[np.arange(len(scores))[:, None], picked]
        np.exp(chosen, out=chosen)
        chosen /= np.add.reduce(chosen, axis=1, keepdims=True)
        return picked, chosen


def _times(x: Floats, matrix: Floats) -> Floats:
    """Rows times a matrix, one matrix-vector product a row."""
    product: Floats = np.matmul(x[:, None, :], matrix)
    return product[:, 0, :]


def _normed(x: Floats) -> Floats:
    """RMSNorm over the last axis, without a gain (the gain is part of the next matrix)."""
    size: Floats = np.matmul(x[..., None, :], x[..., :, None])[..., 0]
    size += _EPSILON
    np.sqrt(size, out=size)
    size *= x.shape[-1] ** -0.5
    return np.divide(x, size)


def _rotation(positions: int, head_dim: int) -> NDArray[np.complex64]:
    """Rotary position embedding as complex factors, one for each pair of numbers (positions, head_dim / 2). Queries
    and keys both carry the root of the scores' scale."""
    frequency = _ROPE_BASE ** (-np.arange(0, head_dim, 2) / head_dim)
    angle = np.arange(positions)[:, None] * frequency[None, :]
    scale = (_SHARPNESS / head_dim**0.5) ** 0.5
    turned: NDArray[np.complex64] = (np.exp(1j * angle) * scale).astype(np.complex64)
    return turned
