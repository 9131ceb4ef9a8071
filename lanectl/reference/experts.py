"""Where the experts live, and how a layer runs the ones it picked.

An expert is a gated pair of matrices: down(relu(gate(x)) x value(x)). `Experts` is the one door to the experts'
weights; here all of them are resident in fast memory. Other placements are in modules of their own; all give the
same bits: an expert's product with a row is a matrix-vector product of one fixed shape wherever it is computed, and
a row's products are added up in the order of its picked ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lanectl.reference.weights import Floats, Shape, make_expert

_MIB = 1024**2

Ids = NDArray[np.intp]
Runs = list[tuple[int, int, int]]
Matrices = tuple[Floats, Floats]  # an expert's up and down


class Store:
    """The matrices of some experts of every layer, in one piece of memory: up (layers, count, hidden,
    2 x expert_hidden) and down (layers, count, expert_hidden, hidden)."""

    def __init__(self, shape: Shape, layers: int, count: int) -> None:
        self.up: Floats = np.empty((layers, count, shape.hidden, 2 * shape.expert_hidden), np.float32)
        self.down: Floats = np.empty((layers, count, shape.expert_hidden, shape.hidden), np.float32)

    @property
    def count(self) -> int:
        """Experts of a layer it has room for."""
        return int(self.up.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        return self.up.nbytes + self.down.nbytes

    @property
    def size(self) -> str:
        """The same for people."""
        return f"{self.nbytes / _MIB:.2f} MiB"

    def at(self, layer: int, slot: int) -> Matrices:
        """The two matrices kept at a place, to be read or written."""
        return self.up[layer, slot], self.down[layer, slot]

    def put(self, layer: int, slot: int, matrices: Matrices) -> None:
        """Given an expert's matrices, keep them at a place."""
        self.up[layer, slot], self.down[layer, slot] = matrices


class Experts:
    """The experts that are in fast memory: all of them, unless `hot` lists those of each layer. Placements that have
    the others elsewhere build on it."""

    def __init__(self, seed: int, shape: Shape, hot: Sequence[Sequence[int]] | None = None) -> None:
        hot = [range(shape.experts)] * shape.layers if hot is None else hot
        self._shape = shape
        self._fast = Store(shape, shape.layers, len(hot[0]))
        # Views by expert: taking one from a dictionary is several times cheaper than indexing the array.
        self._at: list[dict[int, Matrices]] = [{} for _ in range(shape.layers)]
        for layer, experts in enumerate(hot):
            self._fill(self._fast, layer, experts, seed)
        self.moved: list[set[int]] = [set() for _ in range(shape.layers)]  # experts that ever changed places

    def _fill(self, store: Store, layer: int, experts: Sequence[int], seed: int) -> None:
        """Make a layer's experts into a store, in order, and have them found there."""
        for slot, expert in enumerate(experts):
            store.put(layer, slot, make_expert(seed, self._shape, layer, expert))
            self._at[layer][expert] = store.at(layer, slot)

    @property
    def resident(self) -> int:
        """Experts of a layer that are in fast memory."""
        return self._fast.count

    @property
    def nbytes(self) -> int:
        """Bytes of fast memory the experts take."""
        return self._fast.nbytes

    @property
    def places(self) -> str:
        """Where the experts are, for people."""
        return f"{self._fast.count} hot in fast memory, {self._fast.size}"

    def home(self, layer: int, expert: int) -> Matrices | None:
        """The matrices of an expert where it lives, None if that is not in this process."""
        return self._at[layer].get(expert)

    def run(self, layer: int, x: Floats, picked: Ids, weights: Floats) -> Floats:
        """Given the rows x (rows, hidden), the expert ids each row picked (rows, k; ascending) and their weights
        (rows, k), return for each row the weighted sum of what its experts make of it, added in the order of
        `picked`. A row's result does not depend on the other rows: each (row, expert) pair is a matrix-vector
        product of its own, of one fixed shape."""
        k = picked.shape[1]
        order, runs = sorted_runs(picked.ravel())
        self._ready(layer, runs)
        outputs = np.empty((picked.size, self._shape.hidden), np.float32)
        outputs[order] = products(self._shape, x[order // k], runs, self._at[layer])
        return summed(weights, outputs)

    def _ready(self, layer: int, runs: Runs) -> None:
        """Called before a layer runs the experts it picked."""


def sorted_runs(ids: Ids) -> tuple[Ids, Runs]:
    """Given ids, return the order that sorts them, and (id, start, end) for each run of equal ones in that order."""
    order = ids.argsort(kind="stable")
    return order, _runs(ids[order].tolist())


def products(shape: Shape, inputs: Floats, runs: Runs, matrices: Mapping[int, Matrices]) -> Floats:
    """Given inputs (pairs, hidden) in the order of `runs`, and the matrices by id, return the outputs (pairs, hidden):
    one matrix-vector product a pair and matrix. Raise KeyError for an id that has no matrices."""
    pairs, width = len(inputs), shape.expert_hidden
    used = [(*matrices[expert], start, end) for expert, start, end in runs]
    wide = inputs[:, None, :]
    gated = np.empty((pairs, 1, 2 * width), np.float32)
    for up, _, start, end in used:
        np.matmul(wide[start:end], up, out=gated[start:end])
    active = np.maximum(gated[:, :, :width], 0.0) * gated[:, :, width:]
    outputs = np.empty((pairs, 1, shape.hidden), np.float32)
    for _, down, start, end in used:
        np.matmul(active[start:end], down, out=outputs[start:end])
    return outputs[:, 0, :]


def summed(weights: Floats, outputs: Floats) -> Floats:
    """Given weights (rows, k) and the outputs of all pairs (rows x k, hidden), return the weighted sums (rows,
    hidden), added in the order of the pairs."""
    rows, k = weights.shape
    total: Floats = np.matmul(weights[:, None, :], outputs.reshape(rows, k, -1))
    return total[:, 0, :]


def _runs(sorted_ids: list[int]) -> Runs:
    """Given sorted ids, return (id, start, end) for each run of equal ones."""
    runs = []
    start = 0
    for end in range(1, len(sorted_ids) + 1):
        if end == len(sorted_ids) or sorted_ids[end] != sorted_ids[start]:
            runs.append((sorted_ids[start], start, end))
            start = end
    return runs
