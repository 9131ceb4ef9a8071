"""The sidecar's loop: see a sequence number that is new, compute its call, say that it is complete."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from lanectl.reference.cold_experts import ColdExperts
from lanectl.reference.peer import yielding_wait
from lanectl.reference.peer_file import PeerFile, fence
from lanectl.reference.peer_words import (
    COMPLETED,
    LAYER,
    MAGIC,
    MAGIC_WORD,
    PID_WORD,
    PUBLISHED,
    RANK_WORD,
    ROWMAP_WORD,
    ROWS,
)
from lanectl.reference.sidecar_faults import CallFaults

_REPORT_EVERY = 2000  # calls; the published sidecar's
_RESTING_AFTER_S = 1.0  # without a call …
_REST_S = 1e-3  # … a look every millisecond is enough, and costs a core about one percent
_US = 1e6


class SidecarLoop:
    """Serves one file for as long as the process lives."""

    def __init__(
        self, file: PeerFile, experts: ColdExperts, rowmap: int, faults: CallFaults, say: Callable[[str], None]
    ) -> None:
        """Given the map as a number, and who writes the log."""
        self._file = file
        self._experts = experts
        self._rowmap = rowmap
        self._faults = faults
        self._say = say
        self._calls, self._busy_s, self._rows = 0, 0.0, 0  # since the last report

    def run(self) -> int:
        """Serve. Return the exit code when the two sides do not fit together; else never."""
        words = self._file.words
        last = words[COMPLETED]  # what a sidecar before this one left open is still to be done
        self._introduce()
        idle_since, looks = time.monotonic(), 0
        while True:
            sequence = words[PUBLISHED]
            # Unequal, not greater: a server that was started again counts from 0.
            if sequence == last:
                if time.monotonic() - idle_since > _RESTING_AFTER_S:
                    time.sleep(_REST_S)
                else:
                    looks += yielding_wait(looks)
                if words[MAGIC_WORD] != MAGIC:
                    self._introduce()
                continue
            fence()
            problem = self._serve()
            if problem:
                self._say(f"ERROR: {problem}")
                return 1
            fence()
            words[COMPLETED] = last = sequence
            idle_since, looks = time.monotonic(), 0

    def _serve(self) -> str:
        """Compute the call in the file. Return what is wrong with it, "" if nothing is."""
        file = self._file
        layer, rows = file.header[LAYER], file.header[ROWS]
        if rows == 0:
            return ""
        began = time.monotonic()
        try:
            self._experts.answer(layer, file.x[:rows], file.local[:rows].copy(), file.out[:rows])
        except KeyError:
            return f"layer {layer} asks for experts that this map does not have: the server has another map"
        self._faults.after_call(file.out[:rows], time.monotonic() - began)
        self._count(rows, time.monotonic() - began)
        return ""

    def _count(self, rows: int, seconds: float) -> None:
        self._calls += 1
        self._busy_s += seconds
        self._rows += rows
        if self._calls == _REPORT_EVERY:
            mean_us, mean_rows = self._busy_s / self._calls * _US, self._rows / self._calls
            self._say(f"served {self._calls} cold layer calls, mean {mean_us:.1f} us, mean rows {mean_rows:.2f}")
            self._calls, self._busy_s, self._rows = 0, 0.0, 0

    def _introduce(self) -> None:
        """Say who serves. A server that starts wipes it out; it is written again then."""
        words = self._file.words
        words[ROWMAP_WORD], words[PID_WORD], words[RANK_WORD] = self._rowmap, os.getpid(), 0
        fence()
        words[MAGIC_WORD] = MAGIC
