"""What an operation takes over from swaps whose restore gave up: what they owe, and what they left behind."""

from __future__ import annotations

from lanectl.actions.station import Station
from lanectl.core.journal import Kind, SwapState
from lanectl.core.swap import Outcome
from lanectl.store.journal import Journal, load


def taken_over(station: Station, state: SwapState) -> tuple[SwapState, ...]:
    """Return the swaps whose debts this one takes over once it is armed, and those that they took over before.

    Raise `LaneError` when the journal of one cannot be read.
    """
    found: dict[str, SwapState] = {}
    left = list(state.supersedes)
    while left:
        swap = left.pop()
        if swap not in found:
            found[swap] = load(station.state.journal(swap))
            left += found[swap].supersedes
    return tuple(found.values())


def settle_debts(station: Station, state: SwapState) -> None:
    """Close the swaps whose debts this one has settled: what is owed now serves.

    Raise `LaneError` when one stays open.
    """
    for debt in taken_over(station, state):
        if debt.closed is None:
            journal = Journal.resume(station.state.journal(debt.swap), station.clock)
            try:
                journal.append(Kind.CLOSED, data={"outcome": Outcome.SUPERSEDED, "by": state.swap})
            finally:
                journal.close()
