"""The journal of one swap: records, the hash chain, and the state that is the fold of the records.

One JSON object a line. `prev` is the sha256 of the line before, without its line end (64 zeros for the first), so a
lost, changed or reordered line is seen. Write-ahead: `begin` is durable before the effect, `done` or `failed` after; a
`begin` without an outcome means "maybe happened", and the next move follows from what is observed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lanectl.core.codec import from_json, to_json
from lanectl.core.owed import Owed
from lanectl.core.swap import IllegalTransition, Outcome, Phase, advance
from lanectl.errors import ExitCode, LaneError

FORMAT = 1
FIRST_PREV = "0" * 64


class Kind(StrEnum):
    OPENED = "opened"
    BEGIN = "begin"
    DONE = "done"
    FAILED = "failed"
    PHASE = "phase"
    ARMED = "armed"
    COMMITTED = "committed"
    RESUMED = "resumed"
    STUCK = "stuck"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Record:
    """One line. `at`: wall time, for people. `mono`: CLOCK_MONOTONIC seconds of the boot in `opened` or `resumed`."""

    seq: int
    at: str
    mono: float
    swap: str
    kind: Kind
    step: str = ""
    attempt: int = 1
    data: Mapping[str, Any] = field(default_factory=dict)
    prev: str = FIRST_PREV
    v: int = FORMAT


class DamagedJournal(LaneError):
    """The journal is damaged beyond a torn last line: never go forward from it."""

    exit_code = ExitCode.UNFINISHED


class NeverOpened(DamagedJournal):
    """Not even the opened record is there: its writer died first, and nothing had happened yet."""


def encode(record: Record) -> bytes:
    """Return the record's line, without its line end."""
    return json.dumps(to_json(record), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def line_digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


@dataclass(frozen=True, slots=True)
class Reading:
    """What a journal's bytes hold: the whole records, whether the last line was torn, and damage beyond that."""

    records: tuple[Record, ...]
    torn: bool = False
    damage: str | None = None
    whole_bytes: int = 0


def read(content: bytes) -> Reading:
    """Given a journal's bytes, return its records up to the first damage. Never raises.

    A last line that is incomplete (no line end, or not JSON) is torn: it is ignored and noted. Anything else that is
    wrong (a gap, a bad hash, an unreadable line before the last) is damage; records before it are still returned.
    """
    records: list[Record] = []
    prev, whole = FIRST_PREV, 0
    lines = content.split(b"\n")
    tail = lines.pop()
    for index, line in enumerate(lines):
        last = index == len(lines) - 1 and not tail
        try:
            record = from_json(Record, json.loads(line))
        except (ValueError, LaneError, RecursionError) as error:
            if last:
                return Reading(tuple(records), torn=True, whole_bytes=whole)
            return Reading(tuple(records), damage=f"line {index + 1} cannot be read: {error}", whole_bytes=whole)
        wrong = _wrong(record, len(records) + 1, prev)
        if wrong:
            return Reading(tuple(records), damage=f"line {index + 1}: {wrong}", whole_bytes=whole)
        records.append(record)
        prev = line_digest(line)
        whole += len(line) + 1
    return Reading(tuple(records), torn=bool(tail), whole_bytes=whole)


def _wrong(record: Record, seq: int, prev: str) -> str | None:
    if record.v != FORMAT:
        return f"format {record.v}, this lanectl reads {FORMAT}"
    if record.seq != seq:
        return f"sequence {record.seq} where {seq} belongs"
    if record.prev != prev:
        return "it does not follow the line before it"
    return None


@dataclass(frozen=True, slots=True)
class Planned:
    """A candidate container, in start order: its service, the name recorded before it is created, its id once known."""

    service: str
    name: str
    container_name: str
    stop_grace_s: float
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    step: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """Why a restore gave up; `curable`: time alone may cure it (a busy port or GPU, a daemon that is away)."""

    reason: str
    curable: bool
    times: int
    at: str


@dataclass(frozen=True, slots=True)
class SwapState:
    """The fold of a journal. `owed` is the restore target: old production, after `committed` the promoted lane, and
    `former` the lane that was production until then, whether it was owed or not.

    `left_at`: the step or phase at which the first `resumed` record found it. `pending`: a step that began and has no
    outcome. `failure`: what ended the forward leg; `stumbled`: a step of the way back that failed and is not done yet.
    `stopping`: services of production whose stop began and is not known to have ended.
    `shm`: shared-memory files of the candidate, removed once it is gone. `guest`: a parked lane that is
    started again instead of a new candidate (a rollback); it is stopped, never removed, when it is not owed.
    `supersedes`: open swaps whose debts this one takes over once it is armed. `from_dark`: production was not serving
    when the swap opened. `deadline`: monotonic seconds of `boot_id`.
    """

    swap: str
    lane: str
    kind: str
    command: tuple[str, ...]
    boot_id: str
    deadline: float
    phase: Phase
    opened_at: str
    keep: bool = False
    from_dark: bool = False
    guest: Owed | None = None
    supersedes: tuple[str, ...] = ()
    candidates: tuple[Planned, ...] = ()
    shm: tuple[str, ...] = ()
    armed: bool = False
    owed: Owed | None = None
    former: Owed | None = None
    committed: bool = False
    pending: str | None = None
    stopping: tuple[str, ...] = ()
    done: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failure: Failure | None = None
    interrupted: bool = False
    resumed: int = 0
    left_at: str = ""
    stumbled: str = ""
    stuck: Stuck | None = None
    times_stuck: int = 0
    closed: str | None = None


def fold(records: Sequence[Record]) -> SwapState:
    """Given a journal's records, return the state they add up to.

    Raise `DamagedJournal` when they do not begin with `opened` or record a transition that is not possible.
    """
    state: SwapState | None = None
    for record in records:
        state = extend(state, record)
    if state is None:
        raise NeverOpened("the journal is empty")
    return state


def extend(state: SwapState | None, record: Record) -> SwapState:
    """Given the fold so far (None: nothing yet) and the next record, return the new state. Raise as `fold`."""
    if state is None:
        if record.kind is not Kind.OPENED:
            raise DamagedJournal("the journal does not begin with an opened record")
        return _opened(record)
    try:
        return _apply(state, record)
    except (IllegalTransition, LaneError, KeyError, ValueError) as error:
        raise DamagedJournal(f"record {record.seq} ({record.kind}): {error}") from error


def _opened(record: Record) -> SwapState:
    data = record.data
    try:
        return SwapState(
            swap=record.swap,
            lane=data["lane"],
            kind=data["kind"],
            command=tuple(data["command"]),
            boot_id=data["boot_id"],
            deadline=float(data["deadline"]),
            phase=Phase.OPENED,
            opened_at=record.at,
            keep=bool(data["keep"]),
            from_dark=bool(data["from_dark"]),
            candidates=tuple(from_json(Planned, item) for item in data["candidates"]),
            shm=tuple(data["shm"]),
            guest=from_json(Owed, data["guest"]) if data.get("guest") else None,
            supersedes=tuple(data.get("supersedes", ())),
        )
    except (KeyError, TypeError, ValueError, LaneError) as error:
        raise DamagedJournal(f"the opened record lacks {error}") from error


def _apply(state: SwapState, record: Record) -> SwapState:
    if state.closed is not None:
        raise IllegalTransition("a record after closed")
    return _APPLY[record.kind](state, record)


def _begin(state: SwapState, record: Record) -> SwapState:
    verb, _, service = record.step.partition(":")
    if verb == "stop" and service not in state.stopping:
        state = replace(state, stopping=(*state.stopping, service))
    return replace(state, pending=record.step)


def _done(state: SwapState, record: Record) -> SwapState:
    state = replace(state, pending=None, stumbled="", done={**state.done, record.step: record.data})
    verb, _, service = record.step.partition(":")
    if verb == "stop":
        return replace(state, stopping=tuple(name for name in state.stopping if name != service))
    if verb != "create":
        return state
    made = tuple(
        replace(planned, id=record.data["id"]) if planned.service == service else planned
        for planned in state.candidates
    )
    return replace(state, candidates=made)


def _failed(state: SwapState, record: Record) -> SwapState:
    """A stumble on the way back is tried again and is not what the operation failed at."""
    if record.data.get("back"):
        return replace(state, pending=None, stumbled=record.step)
    failure = Failure(record.step, str(record.data.get("reason", "")), str(record.data.get("message", "")))
    return replace(
        state,
        pending=None,
        failure=state.failure or failure,
        interrupted=state.interrupted or bool(record.data.get("interrupted")),
    )


def _phase(state: SwapState, record: Record) -> SwapState:
    return replace(state, phase=advance(state.phase, Phase(record.step)))


def _armed(state: SwapState, record: Record) -> SwapState:
    target = record.data["target"]
    return replace(
        state,
        phase=advance(state.phase, Phase.ARMED),
        armed=True,
        owed=None if target is None else from_json(Owed, target),
    )


def _committed(state: SwapState, record: Record) -> SwapState:
    former = record.data.get("former")
    return replace(
        state,
        phase=advance(state.phase, Phase.COMMITTED),
        committed=True,
        stopping=(),
        former=from_json(Owed, former) if former else state.owed,
        owed=from_json(Owed, record.data["target"]),
    )


def _resumed(state: SwapState, record: Record) -> SwapState:
    left_at = state.left_at or state.pending or state.stumbled or state.phase
    return replace(state, resumed=state.resumed + 1, stuck=None, left_at=left_at)


def _stuck(state: SwapState, record: Record) -> SwapState:
    stuck = Stuck(str(record.data["reason"]), bool(record.data["curable"]), state.times_stuck + 1, record.at)
    return replace(state, pending=None, stuck=stuck, times_stuck=stuck.times)


def _closed(state: SwapState, record: Record) -> SwapState:
    outcome = str(record.data["outcome"])
    # What another operation took over is over, wherever it stood.
    phase = Phase.CLOSED if outcome == Outcome.SUPERSEDED else advance(state.phase, Phase.CLOSED)
    return replace(state, phase=phase, closed=outcome, stuck=None)


def _opened_again(state: SwapState, record: Record) -> SwapState:
    raise IllegalTransition(f"a second opened record at {record.seq}")


_APPLY = {
    Kind.BEGIN: _begin,
    Kind.DONE: _done,
    Kind.FAILED: _failed,
    Kind.PHASE: _phase,
    Kind.ARMED: _armed,
    Kind.COMMITTED: _committed,
    Kind.RESUMED: _resumed,
    Kind.STUCK: _stuck,
    Kind.CLOSED: _closed,
    Kind.OPENED: _opened_again,
}


def open_states(states: Iterable[SwapState]) -> tuple[SwapState, ...]:
    """Return the swaps that are not closed and whose debts no later armed swap took over, oldest first."""
    known = tuple(states)
    superseded = {swap for state in known if state.armed for swap in state.supersedes}
    opened = (state for state in known if state.closed is None and state.swap not in superseded)
    return tuple(sorted(opened, key=lambda state: state.opened_at))


@dataclass(frozen=True, slots=True)
class Salvage:
    """What can still be learned from a damaged journal: the opened record's state and the last target it names.

    `target_known` False: no ARMED or COMMITTED record can be read, so it cannot say what is owed.
    """

    opened: SwapState | None
    target: Owed | None
    target_known: bool


def salvage(content: bytes) -> Salvage:
    """Given a damaged journal's bytes, return what its readable lines say, wherever the damage is. Never raises."""
    opened: SwapState | None = None
    target: Owed | None = None
    known = False
    for line in content.split(b"\n"):
        try:
            record = from_json(Record, json.loads(line))
            if record.kind is Kind.OPENED and opened is None:
                opened = _opened(record)
            if record.kind in (Kind.ARMED, Kind.COMMITTED):
                named = record.data["target"]
                target, known = (None if named is None else from_json(Owed, named)), True
        except (ValueError, KeyError, TypeError, LaneError, RecursionError):
            continue
    return Salvage(opened, target, known)
