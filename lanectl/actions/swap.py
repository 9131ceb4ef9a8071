"""`lanectl swap`: stop production, boot and prove a candidate, measure it, and bring back what is owed.

The story: take the lock, survey, open the journal, create the candidate, arm the guard, go forward, and whatever
happened on the way, walk the one way back (actions/restore.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from lanectl.actions.creates import create_all
from lanectl.actions.forward import run_forward
from lanectl.actions.guard import Guard
from lanectl.actions.interrupts import Interrupts
from lanectl.actions.leg import Leg
from lanectl.actions.notices import still_true
from lanectl.actions.old_watches import forget_old_watches
from lanectl.actions.operation import Telling, come_back, intend, locked, note_failure, open_journal
from lanectl.actions.preflight import Survey, survey
from lanectl.actions.progress import Progress
from lanectl.actions.report import SwapReport, report
from lanectl.actions.station import Station
from lanectl.actions.unfinished import refuse_unfinished
from lanectl.core.journal import Planned
from lanectl.core.lane import Lane
from lanectl.core.owed import candidate_name
from lanectl.core.plan import Step, Wish, forward_steps
from lanectl.errors import ExitCode, Interrupted, LaneError, Refused
from lanectl.site.load import load_lane
from lanectl.store.journal import Journal


@dataclass(frozen=True, slots=True)
class SwapRequest:
    """What the operator asked for. `profile` None: the lane's own, else `general`; only read with `measure`.

    `gates`: run beside those the lane names. `swap_id`: given when the swap runs as a job that others follow by its
    id; else one is made.
    """

    label: str
    measure: bool = False
    keep: bool = False
    from_dark: bool = False
    profile: str | None = None
    swap_id: str | None = None
    gates: tuple[str, ...] = ()


def swap(station: Station, request: SwapRequest, progress: Progress, interrupts: Interrupts) -> SwapReport:
    """Run one swap to its end; production is back and proven when this returns.

    Raise `Busy`, `Unfinished`, `SpecError`, `Refused` (nothing was touched), `Dark` (what is owed could not be brought
    back), or `LaneError` when lanectl's own records cannot be written before anything was touched.
    """
    with locked(station) as lock:
        refuse_unfinished(station)
        forget_old_watches(station)
        lane = load_lane(station.site, request.label, public=request.keep)
        swap_id = request.swap_id or station.new_swap_id(lane.label)
        lock.update(swap=swap_id, phase="PREFLIGHT")
        return _swap_locked(station, request, lane, swap_id, Telling(progress, lock), interrupts)


def _swap_locked(
    station: Station, request: SwapRequest, lane: Lane, swap_id: str, progress: Progress, interrupts: Interrupts
) -> SwapReport:
    profile = (request.profile or lane.measure_profile or "general") if request.measure else None
    wish = Wish(request.keep, profile, swap_id, request.gates)
    owed = station.production().owed
    intend(station, "swap", {"swap": swap_id, "lane": lane.label, "argv": list(station.command)})
    creates = create_all(station, lane, swap_id)
    steps = forward_steps(lane, owed, creates, wish)
    journal = open_journal(
        station,
        swap_id,
        kind="swap",
        label=lane.label,
        keep=request.keep,
        from_dark=request.from_dark,
        candidates=[
            Planned(
                service.name,
                candidate_name(service.container_name, swap_id),
                service.container_name,
                service.stop_grace_s,
            )
            for service in lane.services
        ],
        shm=lane.shm,
        details={"spec_sha256": lane.sha256, "plan": [step.name for step in steps]},
    )
    guard = Guard(station, swap_id)
    leg = Leg(
        station=station,
        journal=journal,
        wanted=lane,
        leaving=owed,
        owed=owed,
        check=interrupts.check,
        progress=progress,
        guard=guard,
        creates=creates,
        profile=profile,
    )
    try:
        progress.phase("PREFLIGHT", "checking everything before anything is touched")
        seen = survey(station, lane, owed, keep=request.keep, from_dark=request.from_dark, excused=request.gates)
        failure = _go_forward(leg, steps, seen)
        guard.tell_if_lost(journal, progress)
        outcome = come_back(station, journal, progress, "swap", str(failure or ""))
        _settle_up(journal, failure)
        return report(station, journal, outcome, still_true(station, seen.notices))
    finally:
        journal.close()
        guard.dismiss()


def _go_forward(leg: Leg, steps: tuple[Step, ...], seen: Survey) -> BaseException | None:
    """Go forward as far as it goes; return what stopped it. Whatever it is, the way back comes next."""
    try:
        if seen.problems:
            raise Refused(seen.problems)
        run_forward(leg, steps)
    except BaseException as error:
        note_failure(leg.journal, error, "survey")
        leg.progress.note(_why(leg, error))
        return error
    return None


def _why(leg: Leg, error: BaseException) -> str:
    state = leg.journal.state
    step = state.failure.step if state.failure else ""
    after = "; production is on its way back" if state.armed and leg.owed else ""
    if isinstance(error, Refused):
        return "refused: nothing was touched"
    return f"{step}: {error}{after}" if step and not str(error).startswith(step) else f"{error}{after}"


def _settle_up(journal: Journal, failure: BaseException | None) -> None:
    """With production back: re-raise what was not the candidate's failure (a refusal, a fault of lanectl itself)."""
    if isinstance(failure, Refused) or (failure is not None and not isinstance(failure, LaneError)):
        raise failure
    if isinstance(failure, LaneError) and not journal.state.armed and not isinstance(failure, Interrupted):
        # Nothing was touched yet, so it is a refusal, in the failure's own words.
        raise LaneError(failure.message, failure.hint, ExitCode.REFUSED) from failure
