"""Bring production up outside of a swap: `start`, `restart`, and `recover` after a reboot.

Production is owed while they work: they write a journal and keep a guard, so that a death in the middle is finished
like a swap's.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from lanectl.actions.guard import Guard
from lanectl.actions.operation import Telling, come_back, intend, note_failure, note_intent, open_journal
from lanectl.actions.park import hold
from lanectl.actions.progress import Progress
from lanectl.actions.report import SwapReport, report
from lanectl.actions.station import Station
from lanectl.actions.steps import WayBack
from lanectl.actions.watching import clear_trip, of_owed
from lanectl.core.codec import to_json
from lanectl.core.journal import Kind
from lanectl.core.owed import Desired, Owed, Production
from lanectl.core.swap import Phase
from lanectl.errors import ExitCode, LaneError
from lanectl.store.journal import Journal
from lanectl.store.lock import Lock

RECOVER = "recover"  # the kind of what nobody asked for: production is owed


def bring_back(
    station: Station,
    lock: Lock,
    progress: Progress,
    *,
    kind: str,
    stop_first: bool = False,
    guarded: bool = True,
    supersedes: tuple[str, ...] = (),
) -> SwapReport:
    """Start what is recorded as production (stopping it first for a restart) and prove it. The caller holds the lock.

    It is desired to serve from here on, and a trip is cleared: a person asked for it, or nothing had tripped.
    A recovery does so even where nothing can be written. Raise `LaneError` (exit 3) when nothing is recorded, `Dark`
    when it does not come up.
    """
    production = station.production()
    current = production.current
    if current is None:
        raise LaneError(
            "nothing is recorded as production, so there is nothing to start",
            "`lanectl adopt NAME` records what runs; `lanectl swap LANE --keep --from-dark` boots a lane",
            ExitCode.REFUSED,
        )
    swap_id = station.new_swap_id(f"{kind}-{current.lane}")
    lock.update(swap=swap_id, phase=kind.upper())
    # A recovery stops nothing, so whoever comes after it can do it again: it needs no record of what it does.
    owed = kind == RECOVER
    record = note_intent if owed else intend
    record(station, kind, {"swap": swap_id, "lane": current.label, "argv": list(station.command)})
    journal = open_journal(
        station,
        swap_id,
        kind=kind,
        label=current.label,
        keep=True,
        from_dark=True,
        supersedes=supersedes,
        may_be_unwritten=owed,
    )
    guard = Guard(station, swap_id)
    telling = Telling(progress, lock)
    try:
        refused = _arm(station, journal, guard if guarded and journal.written else None, production)
        if refused is None:
            telling.phase(Phase.ARMED, f"{current.label} is owed")
            if stop_first:
                _stop(station, WayBack(journal, station.log), current, telling)
        if refused is None:
            guard.tell_if_lost(journal, telling)
        outcome = come_back(station, journal, telling, kind, str(refused or ""))
        if refused is not None:
            raise LaneError(refused.message, refused.hint, ExitCode.REFUSED) from refused
        return report(station, journal, outcome)
    finally:
        journal.close()
        guard.dismiss()


def _arm(station: Station, journal: Journal, guard: Guard | None, production: Production) -> LaneError | None:
    """Make production owed, a person having asked for it; return why that cannot be, nothing being touched then."""
    try:
        journal.append(Kind.PHASE, Phase.PREFLIGHTED)
        if guard is not None:
            guard.start()
        if production.tripped is not None and production.current is not None:
            clear_trip(station, production.current.server.container_id)
        wanted = replace(production, desired=Desired.SERVING, tripped=None)
        if wanted != production:
            station.record_production(wanted)
        if guard is not None:
            guard.demand()
        data = {"target": to_json(production.current), "guard": guard.pid if guard else None}
        journal.append(Kind.ARMED, data=data)
    except LaneError as error:
        note_failure(journal, error, "arm")
        return error
    return None


def _stop(station: Station, back: WayBack, owed: Owed, progress: Progress) -> None:
    """Stop what runs of it, server first. That a stop fails is met by the way back, which looks again."""
    watchdog = of_owed(station, owed)
    if watchdog is not None:
        with suppress(LaneError):
            watchdog.stand_by()
    for service in reversed(owed.services):
        progress.ticker(f"stopping {service.container_name}")
        try:
            back.run(
                f"stop:{service.name}",
                lambda service=service: hold(station.engine, service.container_id, service),  # type: ignore[misc]
            )
        except LaneError as error:
            progress.note(f"{service.container_name}: {error.message}")
