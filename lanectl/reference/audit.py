"""The byte audit: is every expert still, byte for byte, what it was at boot, wherever it lives now?"""

from __future__ import annotations

import hashlib
import random
from typing import NamedTuple

from lanectl.reference.experts import Experts, Matrices
from lanectl.reference.weights import Shape

_RANDOM_A_LAYER = 64  # beside those that moved; the published audit's


class Audited(NamedTuple):
    """What an audit found: experts checked, (layer, expert) of those that differ, experts that ever moved, and experts
    that are not in this process and could not be looked at."""

    checked: int
    mismatched: list[tuple[int, int]]
    moved: int
    elsewhere: int

    @property
    def line(self) -> str:
        """The line for the log."""
        return f"BYTE AUDIT: {self.checked} checked, {len(self.mismatched)} mismatches"


class ByteAudit:
    """Takes every expert's fingerprint when it is made."""

    def __init__(self, experts: Experts, shape: Shape) -> None:
        self._experts = experts
        self._all = shape.layers * shape.experts
        self._boot = [
            {
                expert: _fingerprint(matrices)
                for expert in range(shape.experts)
                if (matrices := experts.home(layer, expert)) is not None
            }
            for layer in range(shape.layers)
        ]

    def run(self) -> Audited:
        """Fingerprint every expert that ever moved and 64 others of each layer, where they are now."""
        checked, mismatched = 0, []
        for layer, boot in enumerate(self._boot):
            moved = self._experts.moved[layer]
            others = [expert for expert in boot if expert not in moved]
            for expert in [*sorted(moved), *random.sample(others, min(_RANDOM_A_LAYER, len(others)))]:
                matrices = self._experts.home(layer, expert)
                checked += 1
                if matrices is None or _fingerprint(matrices) != boot[expert]:
                    mismatched.append((layer, expert))
        here = sum(map(len, self._boot))
        return Audited(checked, mismatched, sum(map(len, self._experts.moved)), self._all - here)


def _fingerprint(matrices: Matrices) -> bytes:
    digest = hashlib.sha256()
    for matrix in matrices:
        digest.update(matrix.data)
    return digest.digest()
