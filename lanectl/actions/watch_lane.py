"""`lanectl watch LANE`: see to it that the lane that serves is watched, and follow its watchdog."""

from __future__ import annotations

from lanectl.actions.operation import locked
from lanectl.actions.progress import Progress
from lanectl.actions.station import Station
from lanectl.actions.watch_view import WatchView
from lanectl.actions.watchdog import Watchdog
from lanectl.actions.watching import of_owed
from lanectl.core.owed import Desired, Owed
from lanectl.errors import ExitCode, LaneError

LOOK_EVERY_S = 0.25


def look(station: Station, label: str) -> WatchView:
    """Return the view of the watchdog of production, which must be this lane. Raise `LaneError`."""
    current = _current(station, label)
    seen = Watchdog.read(station.state, current.server.container_id, label)
    if seen is None:
        raise LaneError(f"{label} was never watched", f"`lanectl watch {label}` arms its watchdog", ExitCode.FAILED)
    return seen


def follow(station: Station, label: str, progress: Progress) -> WatchView:
    """Arm the watchdog of production unless it is armed and its files are whole, and follow it; return the view of its
    end.

    Raise `Busy` when somebody else changes lanes now, `LaneError` when it cannot be armed.
    """
    current = _current(station, label)
    seen = Watchdog.read(station.state, current.server.container_id, label)
    if seen is None or not (seen.sound or seen.tripped):
        with locked(station):
            _arm(station, current)
        progress.note(f"the watchdog of {label} is armed")
    while True:
        seen = look(station, label)
        if not seen.armed:
            return seen
        progress.ticker(f"watchdog {seen.mode}, epoch {seen.epoch}, {seen.waits} waits")
        station.clock.sleep(LOOK_EVERY_S)


def _arm(station: Station, current: Owed) -> None:
    if station.production().desired is Desired.STOPPED:
        raise LaneError(
            f"{current.label} was stopped on purpose", "`lanectl start` starts it and its watchdog", ExitCode.USAGE
        )
    watchdog = of_owed(station, current)
    if watchdog is None:
        raise LaneError(
            f"lane {current.label} asks for no watchdog", "add a `watchdog:` block to its spec", ExitCode.USAGE
        )
    watchdog.arm()
    watchdog.tighten()


def _current(station: Station, label: str) -> Owed:
    """Return production if it is this lane. Raise `LaneError` (exit 2) when it is not."""
    current = station.production().current
    if current is None or current.label != label:
        serves = current.label if current is not None else "nothing"
        raise LaneError(f"production is {serves}, not {label}", "`lanectl status` says what serves", ExitCode.USAGE)
    return current
