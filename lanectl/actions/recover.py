"""Finish what a dead swap left: level-triggered, repeatable, and never forward.

Callers on the Station: the guard, a person, the timer (`--if-needed`) and the boot.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import datetime

from lanectl.actions.history import FORGOTTEN, forgotten
from lanectl.actions.observe import find
from lanectl.actions.operation import Telling, conclude, locked, note_intent
from lanectl.actions.park import hold
from lanectl.actions.progress import Progress
from lanectl.actions.repair import repair_damaged
from lanectl.actions.restore import restore
from lanectl.actions.serve import RECOVER, bring_back
from lanectl.actions.station import Station
from lanectl.actions.unfinished import dark, open_swaps
from lanectl.actions.watching import ensure as ensure_watched
from lanectl.actions.watching import has_said, record_unwatched
from lanectl.core.container import Status
from lanectl.core.journal import Kind, SwapState
from lanectl.core.owed import Production, Tripped
from lanectl.core.recovery import Act, owed_without_swap, retry_after
from lanectl.core.watch import Rule
from lanectl.errors import Busy, Dark, ExitCode, LaneError
from lanectl.store.journal import Journal
from lanectl.store.lock import Lock

AWAITS_WATCHDOG = "AWAIT WATCHDOG"  # what the lock says meanwhile


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery did: each operation it finished and its outcome; `watchdog`: what it did about production's, ""
    for nothing; `why` says why there was nothing to do."""

    swaps: tuple[tuple[str, str], ...]
    why: str = ""
    watchdog: str = ""

    @property
    def nothing(self) -> bool:
        return not self.swaps and not self.watchdog


def recover(station: Station, progress: Progress, *, if_needed: bool = False) -> Recovered:
    """Close every unfinished swap, oldest first, by restoring what it owes; then start production if owed and down.

    `if_needed`: for a timer. A living owner is quiet success, and a restore that gave up is tried again only if time
    can cure its cause, with back-off. Raise `Busy` (not with `if_needed`), `Dark` when what is owed does not come back.
    """
    try:
        with locked(station) as lock:
            return _recover(station, lock, progress, if_needed)
    except Busy as busy:
        if if_needed:
            return Recovered((), busy.message)
        raise


def _recover(station: Station, lock: Lock, progress: Progress, if_needed: bool) -> Recovered:
    repair_damaged(station, progress)
    done = []
    for state in open_swaps(station):
        if if_needed and not _due(station, state):
            raise dark(state)
        lock.update(swap=state.swap, phase="RECOVER")
        done.append((state.swap, recover_swap(station, state.swap, Telling(progress, lock), by="recover")))
    production = _judged(station, lock, progress)
    lost = forgotten(station.state, production)
    if lost is not None:
        raise Dark(f"what is owed cannot be known: {lost}", FORGOTTEN)
    move = owed_without_swap(production, _runs(station, production))
    if move.act is Act.NOTHING:
        return Recovered(tuple(done), move.why, _watch_over(station, production, progress))
    progress.note(move.why)
    report = bring_back(station, lock, progress, kind=RECOVER, guarded=not if_needed)
    return Recovered((*done, (report.swap, report.outcome)))


def _judged(station: Station, lock: Lock, progress: Progress) -> Production:
    """Return what production is, once a watchdog that has just killed it has recorded why: until then it looks as if it
    had merely ended, and would be started again. One that lives on under what merely ended is asked for no more than
    two looks."""
    production = station.production()
    owed = production.owed
    if owed is None or owed.watchdog is None or _runs(station, production):
        return production
    lock.update(phase=AWAITS_WATCHDOG)
    progress.note(f"{owed.label} is down; asking its watchdog whether it killed it")
    if not has_said(station, owed.server.container_id):
        progress.note(f"the watchdog of {owed.label} neither looks nor ends")
    return station.production()


def _watch_over(station: Station, production: Production, progress: Progress) -> str:
    """A lane that runs and whose watchdog died with its supervisor is watched again, or it must not serve.

    Return what was done about its watchdog, "" for nothing. Raise `LaneError` (exit 8) when it had to be stopped.
    """
    owed = production.owed
    if owed is None:
        return ""
    try:
        return ensure_watched(station, owed)
    except LaneError as error:
        progress.note(f"{error.message}; stopping {owed.label}: nothing serves unwatched")
        for service in reversed(owed.services):
            hold(station.engine, service.container_id, service)
        unrecorded = _record_unwatched(station, production, error.message)
        message = f"{owed.label} was stopped: {error.message}{unrecorded}"
        raise LaneError(message, error.hint, ExitCode.TRIPPED) from error


def _record_unwatched(station: Station, production: Production, why: str) -> str:
    """Record that nothing starts it until a person says so; return "" once one of the two records is written.

    The watchdog's own has space kept for it, so a full disk does not make it forgotten.
    """
    tripped = Tripped(station.clock.wall(), f"{Rule.UNWATCHED}: {why}")
    owed, failed = production.owed, ""
    if owed is not None:
        try:
            record_unwatched(station, owed, why, tripped.at)
        except LaneError as error:
            failed = f"; that it must not be started cannot be recorded: {error.message}"
    try:
        station.record_production(replace(production, tripped=tripped))
    except LaneError as error:
        station.log.error("production.json does not say that it was stopped unwatched", error=error.message)
        return failed
    return ""


def _due(station: Station, state: SwapState) -> bool:
    """True unless a restore of this swap gave up and it is not yet time, or not for a timer, to try again.

    Wall time, since a reboot may lie between; a clock that was set back makes it due.
    """
    if state.stuck is None:
        return True
    wait = retry_after(state.stuck)
    if wait is None:
        return False
    since = (_moment(station.clock.wall()) - _moment(state.stuck.at)).total_seconds()
    return since < 0 or since >= wait


def _moment(wall: str) -> datetime:
    return datetime.fromisoformat(wall.replace("Z", "+00:00"))


def _runs(station: Station, production: Production) -> bool:
    """True when every container of production runs; whether it answers is for `status` and the cron check to say."""
    if production.current is None:
        return False
    found = (find(station, service, (service.container_name,)) for service in production.current.services)
    return all(container is not None and container.status is Status.RUNNING for container in found)


def recover_swap(station: Station, swap: str, progress: Progress, *, by: str) -> str:
    """Restore what one unfinished swap owes and close it; return its outcome. The caller holds the lock.

    Raise `Dark`; audit failures are logged and do not stop it.
    """
    journal = Journal.resume(station.state.journal(swap), station.clock)
    try:
        note_intent(station, by, {"swap": swap, "phase": journal.state.phase})
        try:
            journal.append(Kind.RESUMED, data={"by": by, "pid": os.getpid(), "boot_id": station.boot_id})
        except LaneError as error:
            station.log.error("journal append failed; the restore goes on", error=error.message)
        progress.phase("RESUMED", f"swap {swap} was left at {journal.state.phase}; restoring what it owes")
        try:
            outcome = restore(station, journal, progress, recovering=True)
        except LaneError as error:
            conclude(station, by, {"swap": swap, "outcome": type(error).__name__, "message": error.message})
            raise
        conclude(station, by, {"swap": swap, "outcome": outcome})
        return outcome
    finally:
        journal.close()
