"""Find swaps whose journal is open, and say what to do about them."""

from __future__ import annotations

from lanectl.actions.station import Station
from lanectl.core.journal import SwapState, open_states
from lanectl.errors import Dark, Interrupted, LaneError, Unfinished
from lanectl.store.journal import is_closed, load_all
from lanectl.store.lock import Lock, LockHolder


def open_swaps(station: Station) -> tuple[SwapState, ...]:
    """Return the swaps that are not closed, oldest first. Raise `DamagedJournal` when one cannot be understood."""
    journals = (station.state.journal(swap) for swap in station.state.swap_ids())
    return open_states(load_all(path for path in journals if not is_closed(path)))


def at_work(station: Station) -> tuple[LockHolder | None, tuple[SwapState, ...]]:
    """Return who holds the lock, and the open swaps: with no holder, nobody works on them."""
    holder = Lock(station.state.lock).holder()
    swaps = open_swaps(station)
    if swaps and holder is None:
        holder = Lock(station.state.lock).holder()  # a swap that began between the two looks was not left behind
    return holder, swaps


def stuck_swaps(station: Station) -> tuple[SwapState, ...]:
    """Return the swaps whose restore gave up; what they owe may be taken over by a person's next command.

    Raise `Unfinished` when a swap is open and nobody has tried to restore it: recover first, never take over silently.
    """
    swaps = open_swaps(station)
    for state in swaps:
        if state.stuck is None:
            raise Unfinished(
                f"swap {state.swap} was left unfinished at {state.phase} and nobody is working on it",
                "run `lanectl recover` first: it restores what that swap owes",
            )
    return swaps


def refuse_unfinished(station: Station) -> None:
    """Raise `Unfinished` if a swap is open, `Dark` if a restore gave up."""
    for state in stuck_swaps(station):
        raise dark(state)


def dark(state: SwapState) -> Dark:
    """Say why nothing serves, and the two commands that can help."""
    what = state.owed.label if state.owed else "production"
    why = state.stuck.reason if state.stuck else "nobody tried to bring it back yet"
    return Dark(
        f"DARK since swap {state.swap}: {what} is owed and could not be brought back: {why}",
        "cure the cause and run `lanectl recover`, or go back to the lane before with `lanectl rollback`",
    )


def interrupted_recovery(station: Station) -> LaneError:
    """Say what a recovery leaves that somebody interrupted: `Unfinished` where a swap is open, else `Interrupted`.

    Raise `DamagedJournal` when a journal cannot be understood.
    """
    swaps = open_swaps(station)
    if not swaps:
        status = "`lanectl status` says whether production serves; run `lanectl recover` again if it does not"
        return Interrupted("interrupted; no swap is open", status)
    left = ", ".join(f"{state.swap} at {state.phase}" for state in swaps)
    return Unfinished(
        f"interrupted, and not finished: {left}; what is owed may not be back yet", "run `lanectl recover` again"
    )
