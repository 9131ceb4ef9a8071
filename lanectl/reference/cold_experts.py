"""The cold experts in a sidecar's memory, by their local ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lanectl.reference.experts import Matrices, Store, products, sorted_runs
from lanectl.reference.weights import Floats, Shape, make_expert


class ColdExperts:
    """A layer's cold experts in the order of the map's list: that place is the local id."""

    def __init__(self, shape: Shape, count: int) -> None:
        self._shape = shape
        self._store = Store(shape, shape.layers, count)
        self._at: list[dict[int, Matrices]] = [
            {slot: self._store.at(layer, slot) for slot in range(count)} for layer in range(shape.layers)
        ]

    @property
    def nbytes(self) -> int:
        """Bytes all of them take."""
        return self._store.nbytes

    def prepare(self, layer: int, seed: int, cold: Sequence[int]) -> int:
        """Make a layer's experts. Return the bytes that are in use after it, when layers are prepared in order."""
        for slot, expert in enumerate(cold):
            self._store.put(layer, slot, make_expert(seed, self._shape, layer, expert))
        return self.nbytes * (layer + 1) // self._shape.layers

    def at(self, layer: int, local: int) -> Matrices:
        """An expert's matrices, to be read or written."""
        return self._at[layer][local]

    def answer(self, layer: int, x: Floats, local: NDArray[np.int32], out: Floats) -> None:
        """Given rows (rows, hidden) and each pick's local id (rows, picked), -1 for one that is not asked for, write
        what the experts make of the rows into out (rows, picked, hidden), at the places asked for. Raise KeyError
        for a local id that no cold expert has."""
        flat = local.ravel().astype(np.intp)
        asked = np.flatnonzero(flat >= 0)
        order, runs = sorted_runs(flat[asked])
        pairs = asked[order]
        out.reshape(flat.size, -1)[pairs] = products(self._shape, x[pairs // local.shape[1]], runs, self._at[layer])
