"""Experts with a sidecar: the hot ones here, the cold ones computed by another process meanwhile."""

from __future__ import annotations

import numpy as np

from lanectl.reference.experts import Experts, Ids, products, sorted_runs, summed
from lanectl.reference.peer import Peer, local_ids
from lanectl.reference.rowmap import RowMap
from lanectl.reference.weights import Floats, Shape


class SidecarExperts(Experts):
    """Keeps the map's hot experts and asks the peer for the cold ones, layer by layer."""

    def __init__(self, seed: int, shape: Shape, rowmap: RowMap, peer: Peer) -> None:
        super().__init__(seed, shape, rowmap.hot)
        self._local = [local_ids(shape.experts, cold) for cold in rowmap.cold]
        self._peer = peer

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
        outputs[pairs] = products(x[pairs // k], runs, self._at[layer])
        if len(asked):
            answer = self._peer.collect(len(asked))
            if answer is not None:
                outputs[cold.ravel()] = answer[cold[asked]]
        return summed(weights, outputs)
