"""When what happened in a swap, from its journal: seconds by phase, and how long nothing served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lanectl.core.journal import Kind, Record
from lanectl.core.swap import Phase


@dataclass(frozen=True, slots=True)
class PhaseTime:
    phase: str
    at: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Seconds each phase took until it was recorded, and the whole.

    `dark_s`: from the order to stop production until what is owed (or a committed candidate) answered a real request
    again; None when production was not stopped. It is lanectl's own view: a client's is a few milliseconds shorter.
    """

    phases: tuple[PhaseTime, ...]
    total_s: float
    dark_s: float | None


def timeline(records: Sequence[Record]) -> Timeline:
    """Given a journal's records of one boot, return its timeline."""
    if not records:
        return Timeline((), 0.0, None)
    phases = []
    last = records[0].mono
    for record in records:
        name = _phase_of(record)
        if name is not None:
            phases.append(PhaseTime(name, record.at, round(record.mono - last, 3)))
            last = record.mono
    return Timeline(tuple(phases), round(records[-1].mono - records[0].mono, 3), _dark(records))


def _phase_of(record: Record) -> str | None:
    if record.kind is Kind.PHASE:
        return record.step
    return {Kind.ARMED: Phase.ARMED, Kind.COMMITTED: Phase.COMMITTED, Kind.CLOSED: Phase.CLOSED}.get(record.kind)


def _dark(records: Sequence[Record]) -> float | None:
    stopped = next((r.mono for r in records if r.kind is Kind.BEGIN and r.step.startswith("stop:")), None)
    if stopped is None:
        return None
    committed = any(record.kind is Kind.COMMITTED for record in records)
    # A kept candidate serves on the public port from READY on; otherwise service is back when production is proven.
    back = Phase.READY if committed else "prove"
    for record in records:
        if record.mono > stopped and record.step == back and record.kind in (Kind.PHASE, Kind.DONE):
            return round(record.mono - stopped, 3)
    return None
