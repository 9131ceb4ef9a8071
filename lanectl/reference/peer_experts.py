"""Experts with a sidecar: the hot ones here, the cold ones computed by another process meanwhile."""

from __future__ import annotations

import numpy as np

from lanectl.reference.experts import Experts, Ids, products, sorted_runs, summed
from lanectl.reference.peer import Peer, local_ids
from lanectl.reference.peer_check import PeerCheck
from lanectl.reference.rowmap import RowMap
from lanectl.reference.weights import Floats, Shape


class SidecarExperts(Experts):
    """Keeps the map's hot experts and asks the peer for the cold ones, layer by layer."""

    def __init__(self, seed: int, shape: Shape, rowmap: RowMap, peer: Peer, check: PeerCheck | None = None) -> None:
        """`check`, if given, compares what the peer returns."""
        super().__init__(seed, shape, rowmap.hot)
        self._local = [local_ids(shape.experts, cold) for cold in rowmap.cold]
        self._cold_count = rowmap.cold_count
        self._peer = peer
        self._check = check

    @property
    def places(self) -> str:
        return f"{super().places}; {self._cold_count} cold in a sidecar"

    def run(self, layer: int, x: Floats, picked: Ids, weights: Floats) -> Floats:
        rows, k = picked.shape
        local = self._local[layer][picked]
        cold = local >= 0
        asked = np.flatnonzero(cold.any(axis=1))
        self._peer.publish(layer, x[asked], local[asked], rows)
        hot = np.flatnonzero(~cold)
        order, runs = sorted_runs(picked.ravel()[hot])
        pairs = hot[order]
        outputs = np.zeros((picked.size, self._shape.hidden), np.float32)
        outputs[pairs] = products(self._shape, x[pairs // k], runs, self._at[layer])
        if len(asked):
            answer = self._peer.collect(len(asked))
            if answer is not None:
                outputs[cold.ravel()] = answer[cold[asked]]
        output = summed(weights, outputs)
        if len(asked) and self._check is not None and self._check.wants(rows):
            returned = np.where(cold[:, :, None], outputs.reshape(rows, k, -1), 0.0)
            self._check.compare(layer, x, np.where(cold, picked, -1), weights, returned, output)
        return output
