"""Where the experts live, and how a layer runs the ones it picked.

An expert is a gated pair of matrices: down(relu(gate(x)) x value(x)). `Experts` is the one door to the experts'
weights; here all of them are resident in fast memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lanectl.reference.weights import Floats, Shape, make_expert


class Experts:
    """All experts of all layers, in fast memory."""

    def __init__(self, seed: int, shape: Shape) -> None:
        self._shape = shape
        self._up = np.empty((shape.layers, shape.experts, shape.hidden, 2 * shape.expert_hidden), np.float32)
        self._down = np.empty((shape.layers, shape.experts, shape.expert_hidden, shape.hidden), np.float32)
        for layer in range(shape.layers):
            for expert in range(shape.experts):
                self._up[layer, expert], self._down[layer, expert] = make_expert(seed, shape, layer, expert)
        # Lists of views: taking one from a list is several times cheaper than indexing the array.
        self._up_of = [list(layer) for layer in self._up]
        self._down_of = [list(layer) for layer in self._down]

    @property
    def resident(self) -> int:
        """Experts of a layer that are in fast memory."""
        return self._shape.experts

    @property
    def nbytes(self) -> int:
        """Bytes the experts take."""
        return self._up.nbytes + self._down.nbytes

    def run(self, layer: int, x: Floats, picked: NDArray[np.intp], weights: Floats) -> Floats:
        """Given the rows x (rows, hidden), the expert ids each row picked (rows, k; ascending) and their weights
        (rows, k), return for each row the weighted sum of what its experts make of it, added in the order of
        `picked`. A row's result does not depend on the other rows: each (row, expert) pair is a matrix-vector
        product of its own, of one fixed shape."""
        rows, k = picked.shape
        pairs = rows * k
        flat = picked.ravel()
        order = flat.argsort(kind="stable")
        inputs = x[order // k][:, None, :]
        runs = _runs(flat[order].tolist())
        gated = np.empty((pairs, 1, 2 * self._shape.expert_hidden), np.float32)
        up = self._up_of[layer]
        for expert, start, end in runs:
            np.matmul(inputs[start:end], up[expert], out=gated[start:end])
        width = self._shape.expert_hidden
        active = np.maximum(gated[:, :, :width], 0.0) * gated[:, :, width:]
        outputs = np.empty((pairs, 1, self._shape.hidden), np.float32)
        down = self._down_of[layer]
        for expert, start, end in runs:
            np.matmul(active[start:end], down[expert], out=outputs[start:end])
        by_row = np.empty((pairs, self._shape.hidden), np.float32)
        by_row[order] = outputs[:, 0, :]
        summed: Floats = np.matmul(weights[:, None, :], by_row.reshape(rows, k, -1))
        return summed[:, 0, :]


def _runs(sorted_ids: list[int]) -> list[tuple[int, int, int]]:
    """Given sorted ids, return (id, start, end) for each run of equal ones."""
    runs = []
    start = 0
    for end in range(1, len(sorted_ids) + 1):
        if end == len(sorted_ids) or sorted_ids[end] != sorted_ids[start]:
            runs.append((sorted_ids[start], start, end))
            start = end
    return runs
