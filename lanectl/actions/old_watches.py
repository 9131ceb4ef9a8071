"""What watchdogs leave in `state/watch/`, a folder for each boot: removed once it is about nothing any more."""

from __future__ import annotations

from lanectl.actions.station import Station
from lanectl.actions.watch_life import life_of
from lanectl.errors import LaneError
from lanectl.store.files import StoreError
from lanectl.store.watch import WatchFiles, watch_folders, watch_key


def forget_old_watches(station: Station) -> None:
    """Remove the folders of watchdogs that have ended and whose lane's server container is gone. Never raises.

    Production's and its predecessor's stay, whatever became of their containers: a trip that is recorded there says why
    nothing serves. The caller holds the lock and has found no open swap. It is done when a swap begins, so that a
    failed candidate's `watch.log` is there to be read until the next one.
    """
    try:
        owed = _owed(station)
        folders = [folder for folder in watch_folders(station.state.watch) if folder.name not in owed]
        there = {watch_key(container.id) for container in station.engine.containers()} if folders else set()
        for folder in folders:
            if folder.name not in there and _has_ended(station, files := WatchFiles(folder)):
                files.remove()
    except LaneError as error:
        # Some kilobytes more on the disk; the next swap tries again.
        station.log.warning("what old watchdogs left is not removed", error=error.message)


def _owed(station: Station) -> set[str]:
    production = station.production()
    lanes = [lane for lane in (production.current, production.previous) if lane is not None]
    return {watch_key(container_id) for lane in lanes for container_id in lane.container_ids}


def _has_ended(station: Station, files: WatchFiles) -> bool:
    """False while one of its processes lives, and where that cannot be read."""
    try:
        files.status()
    except StoreError as error:
        station.log.warning("what a watchdog left cannot be read, and stays", error=error.message)
        return False
    return life_of(files) is None
