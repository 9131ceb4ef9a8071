"""Adaptive residency: between steps, experts that are picked often take the places of quiet ones in fast memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lanectl.reference.rowmap import RowMap
from lanectl.reference.tally import Tally
from lanectl.reference.tiers import TieredExperts
from lanectl.reference.weights import Shape

_HALF_LIFE = 64  # tokens after which a pick counts half: recent traffic decides
_LEAST = 1.0  # picks: a hot expert that is never picked counts as this much, so that one pick moves nothing

Scores = NDArray[np.float64]


def wanted_swaps(scores: Scores, hot: NDArray[np.bool_], hysteresis: float) -> list[tuple[int, int, int]]:
    """Given every expert's recent picks (layers, experts) and whether it is hot, return (layer, hot expert, cold
    expert) for each layer whose busiest cold expert beats its quietest hot one by the hysteresis."""
    quiet = np.where(hot, scores, np.inf).argmin(axis=1)
    busy = np.where(hot, -np.inf, scores).argmax(axis=1)
    layers = np.arange(len(scores))
    beaten = scores[layers, busy] > hysteresis * np.maximum(scores[layers, quiet], _LEAST)
    return [(layer, int(quiet[layer]), int(busy[layer])) for layer in np.flatnonzero(beaten).tolist()]


class Residency:
    """Swaps experts of two tiers by what was picked lately, at most one pair a layer between two steps."""

    def __init__(
        self,
        experts: TieredExperts,
        rowmap: RowMap,
        shape: Shape,
        tally: Tally,
        hysteresis: float,
        corrupt: int | None = None,
    ) -> None:
        """Given the experts as the map has them, who counts picks, and the hysteresis. `corrupt`: a fault, the number
        of the swap in which a bit of the expert that becomes hot is lost."""
        self._experts = experts
        self._tally = tally
        self._hysteresis = hysteresis
        self._corrupt = corrupt
        self._scores: Scores = np.zeros(tally.counts.shape)
        self._seen = tally.counts.copy()
        self._picked = shape.picked
        self._hot: NDArray[np.bool_] = np.zeros(tally.counts.shape, np.bool_)
        for layer, ids in enumerate(rowmap.hot):
            self._hot[layer, list(ids)] = True
        self._mapped_hot = self._hot.copy()
        self._possible = bool(rowmap.hot_count and rowmap.cold_count)
        self.swaps = 0

    @property
    def displaced(self) -> int:
        """Experts that are cold now and hot in the map."""
        return int((self._mapped_hot & ~self._hot).sum())

    def settle(self) -> None:
        """Swap what is to be swapped after the steps since the last call."""
        new = self._tally.counts - self._seen
        self._seen += new
        tokens = int(new[0].sum()) // self._picked
        if tokens == 0 or not self._possible:
            return
        self._scores *= 0.5 ** (tokens / _HALF_LIFE)
        self._scores += new
        for layer, hot, cold in wanted_swaps(self._scores, self._hot, self._hysteresis):
            self._experts.swap(layer, hot, cold)
            self._hot[layer, hot], self._hot[layer, cold] = False, True
            self.swaps += 1
            if self.swaps == self._corrupt:
                self._experts.home(layer, cold)[0].view(np.uint32)[0, 0] ^= 1
