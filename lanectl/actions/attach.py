"""`lanectl attach`: follow a swap that runs as a job of the Station. A follower changes nothing, nor does its death."""

from __future__ import annotations

from pathlib import Path

from lanectl.actions.guard import UNGUARDED, unguarded_since
from lanectl.actions.progress import Progress
from lanectl.actions.report import SwapReport, report_of
from lanectl.actions.station import Station
from lanectl.actions.unfinished import dark
from lanectl.core.journal import Kind, NeverOpened, Record, fold
from lanectl.errors import ExitCode, LaneError, Unfinished
from lanectl.store.files import exists, read_text
from lanectl.store.journal import records
from lanectl.store.lock import Lock

LOOK_EVERY_S = 0.1
# A detached swap's process starts, takes the lock and writes its opened record within a second or two.
OPENS_WITHIN_S = 30.0
# Between a swap's death and its guard's (or a recover's) taking the lock nobody holds it.
TAKEN_UP_WITHIN_S = 10.0


def newest(station: Station) -> str:
    """Return the swap to follow when none is named: the newest. Raise `LaneError` (exit 2) if there is none."""
    swaps = station.state.swap_ids()
    if not swaps:
        raise LaneError("there is no swap to follow", "`lanectl swap LANE --detach` starts one", ExitCode.USAGE)
    return swaps[-1]


def attach(station: Station, swap: str, progress: Progress) -> SwapReport:
    """Tell what a swap does until it ends; return how it ended.

    Raise `Dark` when its restore gave up, `Unfinished` when it died and nobody took it up, `LaneError` when it never
    began, in its own words (exit 3), or there is none of that name (exit 2).
    """
    path = station.state.journal(swap)
    if not exists(path) and not exists(job_log(station, swap)):
        raise LaneError(f"there is no swap {swap}", "`lanectl audit log` shows the swaps", ExitCode.USAGE)
    _await_opened(station, swap, path)
    told, alone_since = 0, None
    while True:
        seen = records(path)
        for record in seen[told:]:
            _tell(progress, record)
        told = len(seen)
        state = fold(seen)
        if state.closed is not None:
            return report_of(station, seen, state.closed)
        if Lock(station.state.lock).holder() is not None:
            alone_since = None
        elif state.stuck is not None:
            raise dark(state)
        else:
            alone_since = alone_since or station.clock.monotonic()
            if station.clock.monotonic() - alone_since > TAKEN_UP_WITHIN_S:
                raise Unfinished(f"swap {swap} died at {state.phase} and nobody took it up", "run `lanectl recover`")
        station.clock.sleep(LOOK_EVERY_S)


def _await_opened(station: Station, swap: str, path: Path) -> None:
    deadline = station.clock.monotonic() + OPENS_WITHIN_S
    while True:
        try:
            if exists(path) and records(path):
                return
        except NeverOpened:
            pass
        said = job_log(station, swap)
        ended = Lock(station.state.lock).holder() is None and _has_ended(said)
        if ended or station.clock.monotonic() > deadline:
            words = read_text(said).strip()
            raise LaneError(
                f"swap {swap} never began" + (f":\n{words}" if words else ""),
                "`lanectl status` says what serves now",
                ExitCode.REFUSED,
            )
        station.clock.sleep(LOOK_EVERY_S)


def job_log(station: Station, swap: str) -> Path:
    """Where a detached swap's own output goes."""
    return station.state.root / "jobs" / f"{swap}.log"


ENDED_WORDS = ("error:", "refused", "  -> ")


def _has_ended(log: Path) -> bool:
    """True when the job said why it ended: it writes nothing else before its journal is there."""
    return any(line.startswith(ENDED_WORDS) for line in read_text(log).splitlines())


def _tell(progress: Progress, record: Record) -> None:
    if record.kind is Kind.PHASE:
        progress.phase(record.step, f"recorded {record.at}")
    elif record.kind in (Kind.ARMED, Kind.COMMITTED, Kind.RESUMED, Kind.CLOSED):
        progress.phase(record.kind.upper(), str(record.data.get("outcome", f"recorded {record.at}")))
    elif record.kind is Kind.FAILED:
        progress.note(f"{record.step}: {record.data.get('message', 'failed')}")
    elif record.kind is Kind.STUCK:
        progress.note(f"DARK: {record.data.get('reason', '')}")
    elif record.kind is Kind.DONE and record.step == UNGUARDED:
        progress.note(unguarded_since(str(record.data["phase"])))
    elif record.kind is Kind.BEGIN:
        progress.ticker(record.step)
