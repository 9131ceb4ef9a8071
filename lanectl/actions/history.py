"""Closed swaps, read back from their journals: how they ended, how long nothing served, where their numbers are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from lanectl.actions.timeline import timeline
from lanectl.core.journal import Failure, Kind, Record, SwapState, fold
from lanectl.core.owed import Production
from lanectl.core.swap import Outcome, Phase
from lanectl.errors import LaneError
from lanectl.store.journal import records as read_records
from lanectl.store.layout import StateDir


@dataclass(frozen=True, slots=True)
class PastSwap:
    """A closed swap; `kind` tells it from a rollback, a start and the like.

    `dark_s` None: nothing was stopped, or it cannot be told. `serving`: the lane it left serving, since `serving_at`;
    None when it touched nothing or nothing was owed. `measured`: the path of its results.
    """

    swap: str
    kind: str
    lane: str
    outcome: str
    opened_at: str
    closed_at: str
    dark_s: float | None
    serving: str | None
    serving_at: str | None
    measured: str | None
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Outage:
    """How long nothing served in earlier swaps of a lane, seconds; `swaps` says how many that were."""

    swaps: int
    median_s: float
    last_s: float


def past_swaps(state: StateDir) -> Iterator[PastSwap]:
    """Yield closed swaps, newest first. A journal that cannot be understood is left out: others report it."""
    # An id begins with its time; of swaps that have the same one, the journals tell the order.
    for _, same_time in groupby(reversed(state.swap_ids()), key=lambda swap: swap.partition("-")[0]):
        found = [past for swap in same_time if (past := _past(state, swap)) is not None]
        yield from sorted(found, key=lambda past: past.opened_at, reverse=True)


FORGOTTEN = "put the file back, or record what serves now with `lanectl adopt NAME...`"


def forgotten(state: StateDir, production: Production) -> str | None:
    """Return, in words, what earlier swaps left serving though nothing is recorded as production; None if all is well.

    production.json is never written without a lane once it had one: the file was moved away or lost.
    """
    if production.current is not None:
        return None
    last = next((past for past in past_swaps(state) if past.serving is not None), None)
    return None if last is None else f"{state.production} is gone: swap {last.swap} left {last.serving} serving"


def _past(state: StateDir, swap: str) -> PastSwap | None:
    try:
        return read_past(read_records(state.journal(swap)))
    except LaneError:
        return None


def read_past(records: Sequence[Record]) -> PastSwap | None:
    """Given a journal's records, return what a closed swap was; None when it is open. Raise `LaneError` as `fold`."""
    state = fold(records)
    if state.closed is None:
        return None
    proven = next((record.at for record in reversed(records) if _serves_again(record)), None)
    measured = state.done.get("measure", {}).get("path")
    return PastSwap(
        swap=state.swap,
        kind=state.kind,
        lane=state.lane,
        outcome=state.closed,
        opened_at=state.opened_at,
        closed_at=records[-1].at,
        dark_s=timeline(records).dark_s if _one_boot(state, records) else None,
        serving=state.owed.label if state.owed and proven else None,
        serving_at=proven if state.owed else None,
        measured=str(measured) if measured else None,
        failure=state.failure,
    )


def expected_outage(state: StateDir, lane: str, *, keep: bool, measure: bool) -> Outage | None:
    """Given a lane's label and what is asked for, return what such swaps of it cost in service; None: there was none.

    Only swaps that ended the same way count: one that failed early, or did not measure, was dark for less long.
    """
    import statistics

    wanted = Outcome.PROMOTED if keep else Outcome.MEASURED if measure else Outcome.PROVEN
    swaps = (past for past in past_swaps(state) if (past.kind, past.lane, past.outcome) == ("swap", lane, wanted))
    seen = [past.dark_s for past in swaps if past.dark_s is not None]
    return Outage(len(seen), round(statistics.median(seen), 3), seen[0]) if seen else None


def _serves_again(record: Record) -> bool:
    return record.kind is Kind.PHASE and record.step == Phase.RESTORED


def _one_boot(state: SwapState, records: Sequence[Record]) -> bool:
    """Monotonic times of two boots cannot be compared."""
    return all(record.data.get("boot_id") == state.boot_id for record in records if record.kind is Kind.RESUMED)
