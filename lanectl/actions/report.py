"""How an operation that owes production ended, from its journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lanectl.actions.close import BROUGHT_BACK
from lanectl.actions.guard import UNGUARDED
from lanectl.actions.station import Station
from lanectl.actions.timeline import Timeline, timeline
from lanectl.core.journal import Failure, Kind, Record, fold
from lanectl.core.swap import Outcome
from lanectl.errors import ExitCode, Problem, Unguarded
from lanectl.store.journal import Journal

GATE_STEP = "gate"  # what the plan calls the step of a gate, before its name


@dataclass(frozen=True, slots=True)
class SwapReport:
    """How an operation ended. `restored` is the lane that serves now, None when nothing is owed.

    `tail` is the log of the service that failed; `measured` what the measurement recorded.
    """

    swap: str
    kind: str
    lane: str
    outcome: str
    exit_code: ExitCode
    restored: str | None
    timeline: Timeline
    failure: Failure | None
    tail: tuple[str, ...]
    measured: Mapping[str, Any] | None
    gates: Mapping[str, Mapping[str, Any]]
    notices: tuple[str, ...]
    folder: str


def report(station: Station, journal: Journal, outcome: str, notices: Sequence[Problem] = ()) -> SwapReport:
    """Given a closed journal, return how it ended."""
    return report_of(station, journal.records, outcome, notices)


def report_of(station: Station, records: Sequence[Record], outcome: str, notices: Sequence[Problem] = ()) -> SwapReport:
    """Given a closed journal's records, return how it ended."""
    state = fold(records)
    owed = state.owed if state.armed else station.production().owed
    exit_code = ExitCode.OK
    if outcome == Outcome.TRIPPED:
        exit_code = ExitCode.TRIPPED
    elif state.interrupted:
        exit_code = ExitCode.INTERRUPTED
    elif outcome == Outcome.REFUSED:
        exit_code = ExitCode.REFUSED
    elif state.failure is not None and state.failure.reason == Unguarded.__name__:
        exit_code = ExitCode.REFUSED  # production was not stopped
    elif state.failure is not None:
        gated = state.failure.step.startswith(f"{GATE_STEP}:")
        exit_code = ExitCode.FAILED if gated else ExitCode.CANDIDATE
    elif outcome.startswith(Outcome.RECOVERED) and state.kind not in BROUGHT_BACK:
        exit_code = ExitCode.CANDIDATE  # it died on the way, and another process brought back what was owed
    elif state.done.get("measure", {}).get("void"):
        exit_code = ExitCode.FAILED  # the candidate stayed up, and some of its numbers do not count
    return SwapReport(
        swap=state.swap,
        kind=state.kind,
        lane=state.lane,
        outcome=outcome,
        exit_code=exit_code,
        restored=owed.label if owed else None,
        timeline=timeline(records),
        failure=state.failure,
        tail=_tail(records),
        measured=state.done.get("measure"),
        gates=_gates(records),
        notices=(*(str(notice) for notice in notices), *_unguarded(records)),
        folder=str(station.state.swap(state.swap)),
    )


def _unguarded(records: Sequence[Record]) -> tuple[str, ...]:
    lost = next((one for one in records if one.kind is Kind.DONE and one.step == UNGUARDED), None)
    return () if lost is None else (f"its guard died: from {lost.data['phase']} on it went on unguarded",)


def _gates(records: Sequence[Record]) -> dict[str, Mapping[str, Any]]:
    """The verdict of each gate that was run: recorded as done when it passed, with the failure when it did not."""
    found: dict[str, Mapping[str, Any]] = {}
    for record in records:
        verb, _, gate = record.step.partition(":")
        if verb == GATE_STEP and record.kind in (Kind.DONE, Kind.FAILED) and "verdict" in record.data:
            found[gate] = record.data
    return found


def _tail(records: Sequence[Record]) -> tuple[str, ...]:
    """The log's tail of the failure, if it has one; one of the way back is not what the operation failed at."""
    for record in records:
        if record.kind is Kind.FAILED and record.data.get("tail") and not record.data.get("back"):
            return tuple(str(line) for line in record.data["tail"])
    return ()
