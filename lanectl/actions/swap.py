"""`lanectl swap`: stop production, boot and prove a candidate, measure it, and bring back what is owed.

The story: take the lock, survey, open the journal, create the candidate, arm the guard, go forward, and whatever
happened on the way, walk the one way back (actions/restore.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lanectl.actions.creates import create_all
from lanectl.actions.forward import Leg, run_forward
from lanectl.actions.guard import Guard
from lanectl.actions.interrupts import Interrupts
from lanectl.actions.preflight import Survey, survey
from lanectl.actions.progress import Progress
from lanectl.actions.restore import restore
from lanectl.actions.station import Station
from lanectl.actions.steps import failure_data
from lanectl.actions.timeline import Timeline, timeline
from lanectl.actions.unfinished import refuse_unfinished
from lanectl.core.codec import to_json
from lanectl.core.journal import Failure, Kind, Planned
from lanectl.core.lane import Lane
from lanectl.core.owed import Owed, candidate_name
from lanectl.core.plan import Step, Wish, forward_steps
from lanectl.errors import ExitCode, Interrupted, LaneError, Refused
from lanectl.site.load import load_lane
from lanectl.store.audit import INTENT, OUTCOME
from lanectl.store.journal import Journal
from lanectl.store.lock import Lock


@dataclass(frozen=True, slots=True)
class SwapRequest:
    """What the operator asked for. `profile` None: the lane's own, else `general`; only read with `measure`."""

    label: str
    measure: bool = False
    keep: bool = False
    from_dark: bool = False
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class SwapReport:
    """How a swap ended. `restored` is the lane that serves now, None when nothing is owed."""

    swap: str
    lane: str
    outcome: str
    exit_code: ExitCode
    restored: str | None
    timeline: Timeline
    failure: Failure | None
    tail: tuple[str, ...]
    measured: Mapping[str, Any] | None
    notices: tuple[str, ...]
    folder: str


def swap(station: Station, request: SwapRequest, progress: Progress, interrupts: Interrupts) -> SwapReport:
    """Run one swap to its end; production is back and proven when this returns.

    Raise `Busy`, `Unfinished`, `SpecError`, `Refused` (nothing was touched), `Dark` (what is owed could not be brought
    back), or `LaneError` when lanectl's own records cannot be written before anything was touched.
    """
    lock = Lock(station.state.lock)
    lock.acquire(command=" ".join(station.command))
    try:
        refuse_unfinished(station)
        lane = load_lane(station.site, request.label, public=request.keep)
        swap_id = station.new_swap_id(lane.label)
        lock.update(swap=swap_id, phase="PREFLIGHT")
        return _swap_locked(station, request, lane, swap_id, _Telling(progress, lock), interrupts)
    finally:
        lock.release()


class _Telling:
    """Progress that also writes the phase into the lock file, for people who ask who holds it."""

    def __init__(self, inner: Progress, lock: Lock) -> None:
        self._inner, self._lock = inner, lock
        self.note, self.ticker = inner.note, inner.ticker

    def phase(self, phase: str, text: str) -> None:
        self._lock.update(phase=str(phase))
        self._inner.phase(phase, text)


def _swap_locked(
    station: Station, request: SwapRequest, lane: Lane, swap_id: str, progress: Progress, interrupts: Interrupts
) -> SwapReport:
    profile = (request.profile or lane.measure_profile or "general") if request.measure else None
    wish = Wish(request.keep, profile, swap_id)
    owed = station.production().owed
    station.audit.write(INTENT, "swap", {"swap": swap_id, "lane": lane.label, "argv": list(station.command)})
    creates = create_all(station, lane, swap_id)
    steps = forward_steps(lane, owed, creates, wish)
    journal = Journal.create(
        station.state.journal(swap_id), station.clock, swap_id, _opened(station, request, lane, swap_id, steps)
    )
    guard = Guard(station, swap_id)
    leg = Leg(station, journal, lane, owed, creates, profile, interrupts.check, progress, guard)
    try:
        progress.phase("PREFLIGHT", "checking everything before anything is touched")
        seen = survey(station, lane, owed, keep=request.keep, from_dark=request.from_dark)
        failure = _go_forward(leg, steps, seen)
        outcome = _come_back(station, journal, progress, leg, failure)
        return _report(station, leg, seen, outcome)
    finally:
        journal.close()
        guard.dismiss()


def _opened(
    station: Station, request: SwapRequest, lane: Lane, swap_id: str, steps: tuple[Step, ...]
) -> dict[str, Any]:
    """What the opened record keeps: enough to recognise and remove everything the swap may make."""
    return {
        "lane": lane.label,
        "kind": "swap",
        "command": list(station.command),
        "boot_id": station.boot_id,
        "deadline": round(station.clock.monotonic() + station.site.thresholds.swap_deadline_s, 3),
        "keep": request.keep,
        "from_dark": request.from_dark,
        "spec_sha256": lane.sha256,
        "shm": list(lane.shm),
        "candidates": [
            to_json(
                Planned(
                    service.name,
                    candidate_name(service.container_name, swap_id),
                    service.container_name,
                    service.stop_grace_s,
                )
            )
            for service in lane.services
        ],
        "plan": [step.name for step in steps],
    }


def _go_forward(leg: Leg, steps: tuple[Step, ...], seen: Survey) -> BaseException | None:
    """Go forward as far as it goes; return what stopped it. Whatever it is, the way back comes next."""
    try:
        if seen.problems:
            raise Refused(seen.problems)
        run_forward(leg, steps)
    except BaseException as error:
        state = leg.journal.state
        if state.failure is None and state.closed is None:
            with suppress(LaneError):
                leg.journal.append(Kind.FAILED, state.pending or "survey", failure_data(error))
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


def _come_back(station: Station, journal: Journal, progress: Progress, leg: Leg, failure: BaseException | None) -> str:
    """Restore, close, audit; re-raise what is not about the candidate (a refusal, a fault of lanectl) afterwards."""
    try:
        outcome = restore(station, journal, progress, recovering=False)
    except LaneError as error:
        _audit_outcome(station, journal, type(error).__name__, error.message)
        raise
    _audit_outcome(station, journal, outcome, str(failure or ""))
    if isinstance(failure, Refused) or (failure is not None and not isinstance(failure, LaneError)):
        raise failure
    if isinstance(failure, LaneError) and not journal.state.armed and not isinstance(failure, Interrupted):
        # Nothing was touched yet, so it is a refusal, in the failure's own words.
        raise LaneError(failure.message, failure.hint, ExitCode.REFUSED) from failure
    return outcome


def _audit_outcome(station: Station, journal: Journal, outcome: str, detail: str) -> None:
    state = journal.state
    data = {"swap": state.swap, "lane": state.lane, "outcome": outcome, "detail": detail}
    try:
        station.audit.write(OUTCOME, "swap", data)
    except LaneError as error:
        station.log.error("audit not written; production is restored all the same", error=error.message)


def _report(station: Station, leg: Leg, seen: Survey, outcome: str) -> SwapReport:
    state = leg.journal.state
    exit_code = ExitCode.OK
    if state.interrupted:
        exit_code = ExitCode.INTERRUPTED
    elif state.failure is not None:
        exit_code = ExitCode.CANDIDATE
    tail: tuple[str, ...] = ()
    for record in leg.journal.records:
        if record.kind is Kind.FAILED and record.data.get("tail"):
            tail = tail or tuple(str(line) for line in record.data["tail"])
    return SwapReport(
        swap=state.swap,
        lane=state.lane,
        outcome=outcome,
        exit_code=exit_code,
        restored=_label(state.owed),
        timeline=timeline(leg.journal.records),
        failure=state.failure,
        tail=tail,
        measured=state.done.get("measure"),
        notices=tuple(str(notice) for notice in seen.notices),
        folder=str(station.state.swap(state.swap)),
    )


def _label(owed: Owed | None) -> str | None:
    return owed.label if owed else None
