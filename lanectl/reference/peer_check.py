"""Check mode: what the sidecar returned, against a reference path of the server's own, layer by layer.

Source of the variables and of the line: the published hook. A warm-up is checked too and uses up the budget, as there.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from lanectl.reference.experts import Ids, Matrices
from lanectl.reference.sidecar_selftest import Doubles, applied, cosine_of
from lanectl.reference.weights import Floats, Shape, make_expert

BUDGET_VARIABLE = "MEGA_PEER_CHECK"  # how many calls are checked
REFERENCE_VARIABLE = "MEGA_COLD_TRT"  # 1: the server keeps a reference path; without one nothing can be checked
LEAST_TOKENS_VARIABLE = "MEGA_PEER_CHECK_MIN_T"  # only steps of at least so many tokens


class PeerCheck:
    """Compares calls until the budget is used up, and prints a line for each."""

    def __init__(self, seed: int, shape: Shape, budget: int, least_tokens: int, say: Callable[[str], None]) -> None:
        self._seed = seed
        self._shape = shape
        self._budget = budget
        self._least_tokens = least_tokens
        self._say = say
        self._made: dict[tuple[int, int], Matrices] = {}

    def wants(self, tokens: int) -> bool:
        """Whether a call of a step of so many tokens is to be compared."""
        return self._budget > 0 and tokens >= self._least_tokens

    def compare(self, layer: int, x: Floats, picked: Ids, weights: Floats, returned: Floats, output: Floats) -> None:
        """Given the step's rows x (rows, hidden), the picks of cold experts (rows, k), -1 for any other, the weights
        of all picks, what the sidecar returned for them (rows, k, hidden; 0 for any other), and the layer's whole
        output, print how far the cold experts' part is from the reference path's."""
        self._budget -= 1
        asked = np.flatnonzero((picked >= 0).any(axis=1))
        wide = weights.astype(np.float64)[:, :, None]
        from_sidecar: Doubles = (wide * returned).sum(axis=1)[asked]
        reference: Doubles = (wide * self._reference(layer, x, picked)).sum(axis=1)[asked]
        size = max(float(np.linalg.norm(reference)), np.finfo(np.float64).tiny)
        difference = float(np.linalg.norm(from_sidecar - reference)) / size
        share = size / max(float(np.linalg.norm(output)), np.finfo(np.float64).tiny)
        cosine = cosine_of(from_sidecar, reference)
        self._say(
            f"MEGA_PEER check layer={layer} T={len(x)} rows={len(asked)} cold "
            f"rel_diff={difference:.4f} cos={cosine:.5f} (cold share of output norm {share:.3f})"
        )

    def _reference(self, layer: int, x: Floats, picked: Ids) -> Doubles:
        outputs: Doubles = np.zeros((*picked.shape, x.shape[1]))
        for expert in np.unique(picked[picked >= 0]).tolist():
            if (layer, expert) not in self._made:
                self._made[layer, expert] = make_expert(self._seed, self._shape, layer, expert)
            rows, places = np.nonzero(picked == expert)
            outputs[rows, places] = applied(self._made[layer, expert], x[rows])
        return outputs


def peer_check(seed: int, shape: Shape, say: Callable[[str], None]) -> PeerCheck | None:
    """Given the model and who prints lines, return the check that the environment asks for, None if it asks for none.
    Raise ValueError for a variable that is not a number."""
    budget = int(os.environ.get(BUDGET_VARIABLE, "0"))
    least_tokens = int(os.environ.get(LEAST_TOKENS_VARIABLE, "1"))
    if budget <= 0:
        return None
    if os.environ.get(REFERENCE_VARIABLE) != "1":
        say(f"{BUDGET_VARIABLE} without {REFERENCE_VARIABLE}=1: there is no reference path, nothing is checked")
        return None
    return PeerCheck(seed, shape, budget, least_tokens, say)
