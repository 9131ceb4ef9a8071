"""Experts in two tiers of this process: hot ones in fast memory, cold ones in host memory."""

from __future__ import annotations

from lanectl.reference.experts import Experts, Matrices, Runs, Store
from lanectl.reference.rowmap import RowMap
from lanectl.reference.weights import Shape


class TieredExperts(Experts):
    """Cold experts are read in place, from host memory. Any two of a layer can change places between steps."""

    def __init__(self, seed: int, shape: Shape, rowmap: RowMap) -> None:
        super().__init__(seed, shape, rowmap.hot)
        self._host = Store(shape, shape.layers, rowmap.cold_count)
        self._hot_slot = [_slots(hot) for hot in rowmap.hot]  # of each layer: expert -> place in the fast store
        self._cold_slot = [_slots(cold) for cold in rowmap.cold]
        for layer, cold in enumerate(rowmap.cold):
            self._fill(self._host, layer, cold, seed)

    @property
    def places(self) -> str:
        return f"{super().places}; {self._host.count} cold in host memory, {self._host.size}, read in place"

    def home(self, layer: int, expert: int) -> Matrices:
        slot = self._hot_slot[layer].get(expert)
        if slot is not None:
            return self._fast.at(layer, slot)
        return self._host.at(layer, self._cold_slot[layer][expert])

    def swap(self, layer: int, hot: int, cold: int) -> None:
        """Given a hot and a cold expert of a layer, move each to the other's place."""
        for here, there in zip(self.home(layer, hot), self.home(layer, cold), strict=True):
            kept = here.copy()
            here[:] = there
            there[:] = kept
        hot_slot, cold_slot = self._hot_slot[layer], self._cold_slot[layer]
        hot_slot[cold], cold_slot[hot] = hot_slot.pop(hot), cold_slot.pop(cold)
        self.moved[layer] |= {hot, cold}
        for expert in (hot, cold):
            self._at[layer][expert] = self._used(layer, expert)

    def _used(self, layer: int, expert: int) -> Matrices:
        """The matrices a layer computes with."""
        return self.home(layer, expert)


class ScratchExperts(TieredExperts):
    """Before a layer runs, the cold experts it picked are copied into a scratch area in fast memory, which has a slot
    for each cold expert and is shared by all layers; then all its experts run in one call."""

    def __init__(self, seed: int, shape: Shape, rowmap: RowMap) -> None:
        super().__init__(seed, shape, rowmap)
        self._scratch = Store(shape, 1, rowmap.cold_count)
        for layer, cold in enumerate(rowmap.cold):
            for expert in cold:
                self._at[layer][expert] = self._used(layer, expert)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._scratch.nbytes

    @property
    def places(self) -> str:
        hot_and_cold = super().places.removesuffix(", read in place")
        return f"{hot_and_cold}, copied into a scratch of {self._scratch.count} slots, {self._scratch.size}"

    def _ready(self, layer: int, runs: Runs) -> None:
        cold_slot = self._cold_slot[layer]
        for expert, _, _ in runs:
            slot = cold_slot.get(expert)
            if slot is not None:
                self._scratch.put(0, slot, self._host.at(layer, slot))

    def _used(self, layer: int, expert: int) -> Matrices:
        slot = self._cold_slot[layer].get(expert)
        return self.home(layer, expert) if slot is None else self._scratch.at(0, slot)


def _slots(experts: tuple[int, ...]) -> dict[int, int]:
    return {expert: slot for slot, expert in enumerate(experts)}
