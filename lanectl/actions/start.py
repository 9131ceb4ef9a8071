"""`lanectl start` and `lanectl restart`: production serves, on a person's word."""

from __future__ import annotations

from lanectl.actions.operation import locked
from lanectl.actions.progress import Progress
from lanectl.actions.report import SwapReport
from lanectl.actions.serve import bring_back
from lanectl.actions.station import Station
from lanectl.actions.unfinished import stuck_swaps
from lanectl.core.owed import after_trip
from lanectl.errors import ExitCode, LaneError


def start(station: Station, progress: Progress) -> SwapReport:
    """Start production that was stopped; already serving is proven again and fine.

    Raise `Busy`, `Unfinished`, `LaneError` (exit 8 when the watchdog tripped: that needs `restart`), `Dark`.
    """
    with locked(station) as lock:
        debts = stuck_swaps(station)
        production = station.production()
        tripped = production.tripped
        if tripped is not None:
            raise LaneError(
                f"the watchdog tripped at {tripped.at}: {tripped.reason}",
                f"a person clears a trip: {after_trip(production)}",
                ExitCode.TRIPPED,
            )
        return bring_back(station, lock, progress, kind="start", supersedes=tuple(debt.swap for debt in debts))


def restart(station: Station, progress: Progress) -> SwapReport:
    """Stop production and start it again; clears a trip. Raise `Busy`, `Unfinished`, `LaneError` (exit 3), `Dark`."""
    with locked(station) as lock:
        debts = stuck_swaps(station)
        supersedes = tuple(debt.swap for debt in debts)
        return bring_back(station, lock, progress, kind="restart", stop_first=True, supersedes=supersedes)
