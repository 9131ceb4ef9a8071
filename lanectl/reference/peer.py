"""The server's side of the sidecar protocol: publish a call, wait for its end, and give up silently.

What happens when the wait is over without an answer is what the published engine does: the cold experts' part is left
out, word 2 counts one more, nothing is logged, and decoding goes on. The tokens are wrong from then on.
"""

from __future__ import annotations

import os
import time

import numpy as np

from lanectl.reference.experts import Ids
from lanectl.reference.peer_file import PeerFile, fence
from lanectl.reference.peer_words import (
    COMPLETED,
    LAYER,
    PUBLISHED,
    ROWS,
    ROWS_SENT,
    SEQUENCE,
    TIMEOUTS,
    TOKENS,
    TOKENS_SEEN,
    WAITED_NS,
    WAITS,
)
from lanectl.reference.weights import Floats

# A spin is one look at word 1 and a turn for another process: 5 us, while a GPU's spin takes a small part of that. The
# published default of 20,000,000 would be 100 s here; this one is a thousandth, 0.1 s: as theirs, short beside what a
# frozen sidecar takes. The 2,000,000,000 of the lane v25 are 10,000 s, close to three hours.
DEFAULT_SPINS = 20_000
_YIELDING = 200  # spins that only give the processor away: longer than an answer takes on an idle machine
_NAP_S = 50e-6  # then each look is followed by a nap, so that two cores are enough for both sides …
_NAP_SPINS = 10  # … which counts as the spins it stands for: 50 us / 5 us


def yielding_wait(looks: int) -> int:
    """Given how many spins a wait has taken so far, let others run for a little. Return how many spins that was."""
    if looks < _YIELDING:
        os.sched_yield()
        return 1
    time.sleep(_NAP_S)
    return _NAP_SPINS


class Peer:
    """One server's connection to whatever sidecar serves the file."""

    def __init__(self, file: PeerFile, spins: int) -> None:
        """Given the file, which begins anew, and the longest wait in spins."""
        self._file = file
        self._spins = spins
        self._sequence = 0
        file.zero()

    def publish(self, layer: int, x: Floats, local: Ids, tokens: int) -> None:
        """Given the rows that picked cold experts, (rows, hidden), and each pick's local id, (rows, picked), -1 for a
        hot one, hand them to the sidecar. `tokens` is how many rows the step has in all. Every layer is published,
        one without cold rows too."""
        file, rows = self._file, len(x)
        file.x[:rows] = x
        file.local[:rows] = local
        self._sequence += 1
        file.header[LAYER], file.header[ROWS], file.header[TOKENS] = layer, rows, tokens
        file.header[SEQUENCE] = self._sequence
        file.words[ROWS_SENT] += rows
        file.words[TOKENS_SEEN] += tokens
        fence()
        file.words[PUBLISHED] = self._sequence

    def collect(self, rows: int) -> Floats | None:
        """Wait for the end of the call just published, of so many rows. Return what the sidecar made of them, (rows,
        picked, hidden), or None when the spins ran out."""
        words, sequence, spins = self._file.words, self._sequence, 0
        began = time.monotonic_ns()
        # Unequal, not less: a sidecar that was in the middle of a call of the server before may still write its end.
        while words[COMPLETED] != sequence and spins < self._spins:
            spins += yielding_wait(spins)
        words[WAITED_NS] += time.monotonic_ns() - began
        words[WAITS] += 1
        if words[COMPLETED] != sequence:
            words[TIMEOUTS] += 1
            return None
        fence()
        return self._file.out[:rows]


def local_ids(experts: int, cold: tuple[int, ...]) -> Ids:
    """Given a layer's cold list, return every expert's place in it, -1 for a hot one."""
    local = np.full(experts, -1, np.intp)
    local[list(cold)] = np.arange(len(cold))
    return local
