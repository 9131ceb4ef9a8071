"""The guard: a detached process that restores production if the swap's own process dies, `kill -9` included.

It is started before production is touched and blocks on a pipe whose other end only the swap's process holds: the
kernel closes it on death. It is also woken by the swap's overall deadline. A swap that cannot start one is refused.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from pathlib import Path

from lanectl.actions.preload import preload
from lanectl.actions.progress import Progress
from lanectl.actions.station import Station
from lanectl.core.journal import Kind
from lanectl.errors import LaneError, Unguarded
from lanectl.store.journal import Journal
from lanectl.store.process import ProcessId, alive, identify

# Starting Python and importing what a restore needs takes under a second; a machine under load may need more.
READY_WITHIN_S = 30.0
READY_BYTE = b"r"
LOG_NAME = "guard.log"
UNGUARDED = "unguarded"  # the step under which the journal says that the guard died


def unguarded_since(phase: str) -> str:
    """Say in words that the guard was found dead in this phase."""
    return f"the guard died (seen after {phase}): if this process dies too, `lanectl recover` restores what is owed"


class Guard:
    """Start it, and keep the pipe that tells it we live."""

    def __init__(self, station: Station, swap: str) -> None:
        self._station = station
        self._swap = swap
        self._alive_fd: int | None = None
        self._process: ProcessId | None = None
        self._told = False
        self.pid: int | None = None

    @property
    def lost(self) -> bool:
        """True once a guard that was ready lives no more."""
        return self._process is not None and not alive(self._process)

    def start(self) -> None:
        """Start the guard and wait until it says it is ready. Raise `LaneError` when it does not."""
        watch, self._alive_fd = os.pipe()
        ready, tell = os.pipe()
        for fd in (watch, tell):
            os.set_inheritable(fd, True)
        root = self._station.site.root
        argv = [sys.executable, "-m", "lanectl", "--site", root, "guard", self._swap]
        argv += ["--alive-fd", str(watch), "--ready-fd", str(tell)]
        log_path = self._station.state.swap(self._swap) / LOG_NAME
        try:
            self.pid = self._station.jobs.start(
                argv, name=f"lanectl-guard-{self._swap}", keep_fds=(watch, tell), log_path=str(log_path)
            )
        finally:
            os.close(watch)
            os.close(tell)
        try:
            preload(self._station)  # the guard imports the same meanwhile
            self._await_ready(ready, log_path)
            self._process = identify(self.pid)
            if self._process is None:
                raise Unguarded(f"the guard (process {self.pid}) died as soon as it was ready", self._look())
        finally:
            os.close(ready)

    def _await_ready(self, ready: int, log_path: Path) -> None:
        readable, _, _ = select.select([ready], [], [], READY_WITHIN_S)
        if not readable or os.read(ready, 1) != READY_BYTE:
            said = log_path.read_text(errors="replace").strip().splitlines()[-1:] if log_path.exists() else []
            raise LaneError(
                f"the guard did not start within {READY_WITHIN_S:.0f} s{': ' + said[0] if said else ''}",
                f"see {log_path}; without a guard no swap begins",
            )

    def demand(self) -> None:
        """Raise `Unguarded` when it died: production is not stopped without a guard."""
        if self.lost:
            self._told = True
            raise Unguarded(f"the guard (process {self.pid}) died before production was stopped", self._look())

    def tell_if_lost(self, journal: Journal, progress: Progress) -> None:
        """Say once, to the person and in the journal, that it died and the work goes on without it."""
        if self._told or not self.lost:
            return
        self._told = True
        phase = str(journal.state.phase)
        progress.note(f"{unguarded_since(phase)}; {self._look()}")
        with suppress(LaneError):  # a record that cannot be made stops nothing here
            journal.append(Kind.DONE, UNGUARDED, {"pid": self.pid, "phase": phase})

    def _look(self) -> str:
        return f"{self._station.state.swap(self._swap) / LOG_NAME} and `dmesg` may say why"

    def dismiss(self) -> None:
        """Let go of the guard: with the journal closed it finds nothing to do and ends."""
        if self._alive_fd is not None:
            os.close(self._alive_fd)
            self._alive_fd = None
