"""`lanectl rollback`: back to the lane that was production before, in one command.

From serving, from DARK, from a trip: the ladder only, no quality gates, and no healthy production is needed. If the
old lane does not come up, what was production is brought back (unless it tripped).
"""

from __future__ import annotations

from collections.abc import Sequence

from lanectl.actions.forward import run_forward
from lanectl.actions.guard import Guard
from lanectl.actions.interrupts import Interrupts
from lanectl.actions.leg import Leg
from lanectl.actions.operation import Telling, come_back, intend, locked, note_failure, open_journal
from lanectl.actions.progress import Progress
from lanectl.actions.report import SwapReport, report
from lanectl.actions.station import Station
from lanectl.actions.unfinished import dark, stuck_swaps
from lanectl.actions.watching import clear_trip
from lanectl.core.journal import Kind, SwapState
from lanectl.core.owed import Owed
from lanectl.core.plan import rollback_steps
from lanectl.core.swap import Phase
from lanectl.errors import ExitCode, Interrupted, LaneError
from lanectl.store.journal import Journal


def previous(station: Station) -> Owed:
    """Return the lane a rollback goes back to. Raise `LaneError` (exit 3), loudly, when there is none."""
    production = station.production()
    if production.previous is None:
        raise LaneError(
            "there is nothing to roll back to: no lane was production before "
            + (production.current.label if production.current else "this"),
            "`lanectl lanes list` shows what can be swapped in; `lanectl recover` brings back what is owed",
            ExitCode.REFUSED,
        )
    return production.previous


def rollback(station: Station, progress: Progress, interrupts: Interrupts) -> SwapReport:
    """Go back to the previous lane and make it production.

    Raise `Busy`, `Unfinished` (a swap died and nobody tried to restore yet: recover first), `LaneError` (exit 3:
    nothing to go back to, or it could not begin), `Dark`.
    """
    with locked(station) as lock:
        debts = stuck_swaps(station)
        guest = previous(station)
        production = station.production()
        swap_id = station.new_swap_id(f"rollback-{guest.lane}")
        lock.update(swap=swap_id, phase="ROLLBACK")
        intend(station, "rollback", {"swap": swap_id, "lane": guest.label, "argv": list(station.command)})
        journal = open_journal(
            station,
            swap_id,
            kind="rollback",
            label=guest.label,
            keep=True,
            guest=guest,
            supersedes=[debt.swap for debt in debts],
        )
        if guest.watchdog is not None:
            # A person asks for this lane: an old trip of it is over.
            clear_trip(station, guest.server.container_id)
        guard = Guard(station, swap_id)
        leg = Leg(
            station=station,
            journal=journal,
            wanted=guest,
            leaving=production.current,
            owed=production.owed,  # not what tripped or was stopped on purpose, though it must make room
            check=interrupts.check,
            progress=Telling(progress, lock),
            guard=guard,
        )
        try:
            failure = _go_back(leg, production.current, guest)
            guard.tell_if_lost(journal, leg.progress)
            outcome = come_back(station, journal, progress, "rollback", str(failure or ""))
            _settle_up(journal, failure, debts)
            return report(station, journal, outcome)
        finally:
            journal.close()
            guard.dismiss()


def _settle_up(journal: Journal, failure: BaseException | None, debts: Sequence[SwapState]) -> None:
    """Re-raise what was a fault of lanectl itself, or stopped the rollback before it touched anything: from DARK, that
    leaves it as dark as it was."""
    if failure is None:
        return
    if not isinstance(failure, LaneError):
        raise failure
    if not journal.state.armed and debts:
        raise dark(debts[0]) from failure
    if not journal.state.armed and not isinstance(failure, Interrupted):
        raise LaneError(failure.message, failure.hint, ExitCode.REFUSED) from failure


def _go_back(leg: Leg, leaving: Owed | None, guest: Owed) -> BaseException | None:
    try:
        # Going back asks for no healthy production: there is nothing to check before the guard.
        leg.journal.append(Kind.PHASE, Phase.PREFLIGHTED)
        run_forward(leg, rollback_steps(leaving, guest, leg.journal.state.swap))
    except BaseException as error:
        note_failure(leg.journal, error, "rollback")
        leg.progress.note(f"{error}; bringing back what is owed")
        return error
    return None
