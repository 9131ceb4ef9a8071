"""What every operation that owes production has in common: the opened record, the guard, the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from lanectl.actions.guard import UNGUARDED
from lanectl.actions.progress import Progress
from lanectl.actions.restore import restore
from lanectl.actions.station import Station
from lanectl.actions.steps import failure_data
from lanectl.core.codec import to_json
from lanectl.core.journal import Kind, Planned
from lanectl.core.owed import Owed
from lanectl.errors import Busy, ExitCode, LaneError
from lanectl.store.audit import INTENT, OUTCOME
from lanectl.store.journal import Journal
from lanectl.store.lock import Lock

# What the lock says until its holder's operation says more: whoever is refused meanwhile is told that, not nothing.
STARTING = "STARTING"


class Telling:
    """Progress that also writes the phase into the lock file, for people who ask who holds it."""

    def __init__(self, inner: Progress, lock: Lock) -> None:
        self._inner, self._lock = inner, lock
        self.note, self.ticker = inner.note, inner.ticker

    def phase(self, phase: str, text: str) -> None:
        self._lock.update(phase=str(phase))
        self._inner.phase(phase, text)


@contextmanager
def _or_refused(what: str) -> Iterator[None]:
    """Lanectl's own records come first: where one cannot be written, nothing is started."""
    try:
        yield
    except Busy:
        raise
    except LaneError as error:
        message = f"{what}, so nothing was started: {error.message}"
        raise LaneError(message, error.hint, ExitCode.REFUSED) from error


@contextmanager
def locked(station: Station) -> Iterator[Lock]:
    """Hold the site's lock. Raise `Busy` naming who holds it, `LaneError` (exit 3) when it cannot be taken at all."""
    lock = Lock(station.state.lock)
    with _or_refused("the site cannot be locked"):
        lock.acquire(command=" ".join(station.command), phase=STARTING)
    try:
        yield lock
    finally:
        lock.release()


def intend(station: Station, command: str, data: Mapping[str, Any]) -> None:
    """Write the intent before the act. Raise `LaneError` (exit 3) if it cannot be: nothing starts unrecorded."""
    with _or_refused("the intent cannot be recorded"):
        station.audit.write(INTENT, command, data)


def note_intent(station: Station, command: str, data: Mapping[str, Any]) -> None:
    """Write the intent of a restore, which goes on without its line: production is owed."""
    try:
        station.audit.write(INTENT, command, data)
    except LaneError as error:
        station.log.error("audit not written; the restore goes on", error=error.message)


def conclude(station: Station, command: str, data: Mapping[str, Any]) -> None:
    """Write the outcome after the act. That it cannot be written changes nothing about what was done."""
    try:
        station.audit.write(OUTCOME, command, data)
    except LaneError as error:
        station.log.error("audit not written; what was done stands", error=error.message)


def open_journal(
    station: Station,
    swap: str,
    *,
    kind: str,
    label: str,
    keep: bool = False,
    from_dark: bool = False,
    candidates: Sequence[Planned] = (),
    shm: Sequence[str] = (),
    guest: Owed | None = None,
    supersedes: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
    may_be_unwritten: bool = False,
) -> Journal:
    """Make the journal with its opened record: enough to recognise, and undo, everything the operation may do.

    Raise `LaneError` (exit 3) when it cannot be made; the audit then has that as the outcome. `may_be_unwritten`: it
    is kept in memory instead.
    """
    opened = {
        "lane": label,
        "kind": kind,
        "command": list(station.command),
        "boot_id": station.boot_id,
        "deadline": round(station.clock.monotonic() + station.site.thresholds.swap_deadline_s, 3),
        "keep": keep,
        "from_dark": from_dark,
        "candidates": [to_json(planned) for planned in candidates],
        "shm": list(shm),
        "guest": to_json(guest),
        "supersedes": list(supersedes),
        **(details or {}),
    }
    path = station.state.journal(swap)
    try:
        with _or_refused("no journal can be written"):
            return Journal.create(path, station.clock, swap, opened)
    except LaneError as error:
        if may_be_unwritten:
            station.log.error("no journal can be written; production is started all the same", error=error.message)
            return Journal.unwritten(path, station.clock, swap, opened)
        conclude(station, kind, {"swap": swap, "lane": label, "outcome": type(error).__name__, "detail": error.message})
        raise


def note_failure(journal: Journal, error: BaseException, fallback_step: str) -> None:
    """Record what stopped the forward leg, unless its step did already."""
    state = journal.state
    if state.failure is None and state.closed is None:
        with suppress(LaneError):
            journal.append(Kind.FAILED, state.pending or fallback_step, failure_data(error))


def come_back(station: Station, journal: Journal, progress: Progress, command: str, detail: str = "") -> str:
    """Walk the one way back to its end and audit it; return the outcome. Raise `Dark` or `Unfinished`."""
    state = journal.state
    data = {"swap": state.swap, "lane": state.lane}
    try:
        outcome = restore(station, journal, progress, recovering=False)
    except LaneError as error:
        conclude(station, command, data | {"outcome": type(error).__name__, "detail": error.message})
        raise
    lost = journal.state.done.get(UNGUARDED)
    unguarded = {} if lost is None else {"unguarded": lost["phase"]}
    conclude(station, command, data | {"outcome": outcome, "detail": detail} | unguarded)
    return outcome
