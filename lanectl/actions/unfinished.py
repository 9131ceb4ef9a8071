"""Find swaps whose journal is open, and say what to do about them."""

from __future__ import annotations

from lanectl.actions.station import Station
from lanectl.core.journal import SwapState, open_states
from lanectl.errors import Dark, Unfinished
from lanectl.store.journal import load


def open_swaps(station: Station) -> tuple[SwapState, ...]:
    """Return the swaps that are not closed, oldest first. Raise `DamagedJournal` when one cannot be understood."""
    return open_states(load(station.state.journal(swap)) for swap in station.state.swap_ids())


def refuse_unfinished(station: Station) -> None:
    """Raise `Unfinished` if a swap is open, `Dark` if a restore gave up: recover first, never take over silently."""
    for state in open_swaps(station):
        if state.stuck is not None:
            raise Dark(
                f"DARK since swap {state.swap}: {state.owed.label if state.owed else 'production'} is owed and could "
                f"not be brought back: {state.stuck}",
                "cure the cause, then run `lanectl recover`",
            )
        raise Unfinished(
            f"swap {state.swap} was left unfinished at {state.phase} and nobody is working on it",
            "run `lanectl recover` first: it restores what that swap owes",
        )
