"""Finish what a dead swap left: level-triggered, repeatable, and never forward.

Three callers on the Station: the guard, a person, and (later) a timer and the boot.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from lanectl.actions.progress import Progress
from lanectl.actions.restore import restore
from lanectl.actions.station import Station
from lanectl.actions.unfinished import open_swaps
from lanectl.core.journal import Kind
from lanectl.errors import LaneError
from lanectl.store.audit import INTENT, OUTCOME
from lanectl.store.journal import Journal
from lanectl.store.lock import Lock


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery did: each swap it closed and how; nothing when there was nothing to do."""

    swaps: tuple[tuple[str, str], ...]

    @property
    def nothing(self) -> bool:
        return not self.swaps


def recover(station: Station, progress: Progress) -> Recovered:
    """Close every unfinished swap, oldest first, by restoring what it owes.

    Raise `Busy` when a living process holds the lock, `Dark` when what is owed could not be brought back.
    """
    lock = Lock(station.state.lock)
    lock.acquire(command=" ".join(station.command))
    try:
        done = []
        for state in open_swaps(station):
            done.append((state.swap, recover_swap(station, state.swap, progress, by="recover")))
        return Recovered(tuple(done))
    finally:
        lock.release()


def recover_swap(station: Station, swap: str, progress: Progress, *, by: str) -> str:
    """Restore what one unfinished swap owes and close it; return its outcome. The caller holds the lock.

    Raise `Dark`; audit failures are logged and do not stop it.
    """
    journal = Journal.resume(station.state.journal(swap), station.clock)
    try:
        _audit(station, INTENT, by, {"swap": swap, "phase": journal.state.phase})
        try:
            journal.append(Kind.RESUMED, data={"by": by, "pid": os.getpid(), "boot_id": station.boot_id})
        except LaneError as error:
            station.log.error("journal append failed; the restore goes on", error=error.message)
        progress.phase("RESUMED", f"swap {swap} was left at {journal.state.phase}; restoring what it owes")
        try:
            outcome = restore(station, journal, progress, recovering=True)
        except LaneError as error:
            _audit(station, OUTCOME, by, {"swap": swap, "outcome": type(error).__name__, "message": error.message})
            raise
        _audit(station, OUTCOME, by, {"swap": swap, "outcome": outcome})
        return outcome
    finally:
        journal.close()


def _audit(station: Station, event: str, by: str, data: dict[str, str]) -> None:
    try:
        station.audit.write(event, by, data)
    except LaneError as error:
        station.log.error("audit not written; the restore goes on", error=error.message)
