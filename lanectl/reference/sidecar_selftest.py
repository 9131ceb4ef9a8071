"""What a sidecar computes before it serves: its own answers against plain arithmetic with freshly made experts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lanectl.reference.cold_experts import ColdExperts
from lanectl.reference.experts import Matrices
from lanectl.reference.rowmap import RowMap
from lanectl.reference.weights import Floats, Shape, make_expert

LEAST_COSINE = 0.999  # below it a sidecar does not serve; the bar of the published map gate
_ROWS = 4  # random rows for every expert

Doubles = NDArray[np.float64]


def lowest_cosine(experts: ColdExperts, seed: int, shape: Shape, rowmap: RowMap) -> tuple[int, float]:
    """Given prepared experts and what they were prepared from, return the layer and the cosine of the cold expert
    whose outputs are farthest from the reference; (0, 1.0) when there are none."""
    random = np.random.default_rng(seed)
    worst = (0, 1.0)
    for layer, cold in enumerate(rowmap.cold):
        x = random.standard_normal((_ROWS, shape.hidden), dtype=np.float32)
        for local, expert in enumerate(cold):
            asked = np.full((_ROWS, 1), local, np.int32)
            out = np.empty((_ROWS, 1, shape.hidden), np.float32)
            experts.answer(layer, x, asked, out)
            cosine = cosine_of(out, applied(make_expert(seed, shape, layer, expert), x))
            worst = min(worst, (layer, cosine), key=lambda one: one[1])
    return worst


def applied(matrices: Matrices, x: Floats) -> Doubles:
    """What an expert makes of rows (rows, hidden), in double precision."""
    up, down = matrices
    gate, value = np.split(x.astype(np.float64) @ up.astype(np.float64), 2, axis=1)
    result: Doubles = (np.maximum(gate, 0.0) * value) @ down.astype(np.float64)
    return result


def cosine_of(one: Floats | Doubles, other: Floats | Doubles) -> float:
    """The cosine between two arrays taken as vectors; 1 for two zero vectors, 0 for one."""
    left, right = one.ravel().astype(np.float64), other.ravel().astype(np.float64)
    size = float(np.linalg.norm(left) * np.linalg.norm(right))
    if size == 0.0:
        return 1.0 if not left.any() and not right.any() else 0.0
    return float(left @ right) / size
