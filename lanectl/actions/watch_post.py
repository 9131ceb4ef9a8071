"""A watchdog's post: what its processes work with. Built by wiring.py from the watchdog's own files, not from specs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lanectl.actions.station import Logger
from lanectl.core.watch import Mode
from lanectl.errors import LaneError
from lanectl.ports import Clock, ContainerEngine, Jobs
from lanectl.store.audit import Audit
from lanectl.store.black_box import BlackBox
from lanectl.store.layout import StateDir
from lanectl.store.watch import Order, TripRecord, WatchedService, WatchFiles, WatchSpec

SHORTEST_JOB = 7  # words of its command: up to the key
WATCHING = b"r"  # what a watcher, and then its supervisor, says once it watches; anything else says why it does not


def nothing_more(_: TripRecord) -> None:
    """A trip starts nothing by itself."""


def job_command(state: StateDir, key: str, *options: str) -> list[str]:
    """Return the command of a watchdog's supervisor."""
    return [sys.executable, "-m", "lanectl", "--site", str(state.root.parent), "watchdog", key, *options]


def is_job(command: Sequence[str], files: WatchFiles) -> bool:
    """True when a process with this command line is one of the watchdog of these files: a fork has its parent's."""
    site, key = files.folder.parents[2], files.folder.name
    if len(command) < SHORTEST_JOB or list(command[1:4]) != ["-m", "lanectl", "--site"]:
        return False
    return list(command[5:7]) == ["watchdog", key] and _same_folder(command[4], site)


def _same_folder(one: str, other: Path) -> bool:
    try:
        return other.samefile(one)
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Post:
    """One watchdog's post. `box` outlives each watcher.

    `shutting_down`: whether the machine is on its way down. `after_trip` is called once the lane is dead and all is
    recorded: the place of a standing order to fall back.
    """

    key: str
    spec: WatchSpec
    files: WatchFiles
    state: StateDir
    engine: ContainerEngine
    clock: Clock
    jobs: Jobs
    audit: Audit
    log: Logger
    box: BlackBox
    shutting_down: Callable[[], bool]
    after_trip: Callable[[TripRecord], None] = nothing_more

    def services(self) -> tuple[WatchedService, ...]:
        """Return the lane's services in kill order, as the owner saw them last."""
        order = self._order()
        return order.services if order is not None else self.spec.services

    def mode(self) -> Mode:
        """Return the mode that the newest order asks for; an end that was not granted changes nothing."""
        order = self._order()
        return (order.wish.mode if order is not None else None) or Mode.SERVING

    def _order(self) -> Order | None:
        """Return the newest order; one that cannot be read is none: it must keep nobody from watching or killing."""
        try:
            return self.files.order()
        except LaneError as error:
            self.log.error("the order that holds cannot be read", error=error.message)
            return None
