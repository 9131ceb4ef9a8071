"""What the engine does beside stepping: the byte audit when asked; the counts file and a line about swaps at times."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lanectl.reference.boot import Booted
from lanectl.reference.bootlog import EngineLog
from lanectl.reference.messages import AuditReport
from lanectl.reference.tally import VARIABLE

_EVERY_S = 20.0  # the published hook's; also the length of the pass that its swaps are counted over


class Upkeep:
    """Looks after one engine, between its steps."""

    def __init__(self, booted: Booted, log: EngineLog) -> None:
        self._booted = booted
        self._log = log
        path = os.environ.get(VARIABLE)
        self._counts_file = Path(path) if path else None
        self._due = time.monotonic() + _EVERY_S
        self._swaps = 0

    def wait_ms(self) -> int | None:
        """How long an engine without work may sleep; None for as long as it likes."""
        if self._counts_file is None:
            return None
        return max(int((self._due - time.monotonic()) * 1000), 0) + 1

    def look(self) -> None:
        """Do what is due."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY_S
            self._write_counts()
            self._report_swaps()

    def close(self) -> None:
        """The engine ends."""
        self._write_counts()

    def audit(self, number: int) -> AuditReport:
        """Run the byte audit and log its line."""
        result = self._booted.audit.run()
        self._log.line(result.line)
        swaps = self._booted.residency.swaps if self._booted.residency else 0
        return AuditReport(number, swaps=swaps, **result._asdict())

    def _write_counts(self) -> None:
        if self._counts_file is not None and self._booted.tally is not None:
            try:
                self._booted.tally.write(self._counts_file)
            except OSError as problem:
                self._log.line(f"ERROR: {VARIABLE}: {problem}")

    def _report_swaps(self) -> None:
        residency = self._booted.residency
        if residency is not None and residency.swaps != self._swaps:
            fresh, self._swaps = residency.swaps - self._swaps, residency.swaps
            self._log.line(
                f"residency: {fresh} swaps since the last line, {residency.swaps} in all, "
                f"{residency.displaced} experts of the map's hot set displaced"
            )
