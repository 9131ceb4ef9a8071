"""`state/watch/` does not grow with every boot of a lane: what is about nothing any more goes when a swap begins."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.actions.old_watches import forget_old_watches
from lanectl.core.lane import Watchdog as Policy
from lanectl.core.watch import Mode, Rule
from lanectl.errors import EngineError
from lanectl.store.process import ProcessId, boot_id, this_process
from lanectl.store.watch import Status, TripRecord, WatchFiles, watch_key
from tests.support.fake_station import FakeSite

ENDED = ProcessId(1, 0, "a boot long ago")


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    return FakeSite(tmp_path)


def watched(site: FakeSite, container_id: str, watcher: ProcessId = ENDED) -> WatchFiles:
    """Leave what a watchdog of this server container does."""
    files = WatchFiles(site.root / "state" / "watch" / watch_key(container_id))
    files.folder.mkdir(parents=True)
    files.write_status(Status(Mode.SERVING, watcher, None, 1.0))
    files.log.write_text("what it said\n")
    return files


def trip() -> TripRecord:
    return TripRecord("prod", Rule.STALL, "it waits", "now", 1.0, boot_id(), Mode.SERVING, 1, None, enforced=True)


def left(site: FakeSite) -> set[str]:
    return {path.name for path in (site.root / "state" / "watch").iterdir()}


def gone() -> str:
    """The id of a container that there is no more."""
    return secrets.token_hex(32)


def test_a_swap_removes_what_is_about_containers_that_are_gone(site: FakeSite) -> None:
    site.produce()
    for _ in range(3):
        watched(site, gone())
    site.lane("cand")
    assert site.swap("cand").outcome == "proven"
    assert left(site) == set()


def test_production_the_lane_before_it_and_what_is_parked_keep_theirs(site: FakeSite) -> None:
    ids = [site.produce("first").id]
    for name in ("second", "third"):
        site.lane(name)
        assert site.swap(name, keep=True).outcome == "promoted"
        ids.append(site.container(name).id)
    kept = {watched(site, container_id).folder.name for container_id in ids}
    watched(site, gone())
    forget_old_watches(site.station())
    assert left(site) == kept


def test_a_trip_of_production_is_kept_though_its_container_is_gone(site: FakeSite) -> None:
    server = site.produce().id
    station = site.station()
    recorded = station.production()
    assert recorded.current is not None
    current = replace(recorded.current, watchdog=Policy("/dev/shm/counters", 1.0, "enforce", "dark"))
    station.record_production(replace(recorded, current=current))
    watched(site, server).write_trip(trip())
    station.engine.kill(server)
    station.engine.remove(server)
    forget_old_watches(station)
    assert station.production().tripped is not None


def test_one_whose_process_lives_is_kept(site: FakeSite) -> None:
    site.produce()
    alive = watched(site, gone(), this_process())
    forget_old_watches(site.station())
    assert left(site) == {alive.folder.name}


def test_one_that_cannot_be_read_is_kept_and_keeps_no_other(site: FakeSite) -> None:
    site.produce()
    unreadable = [watched(site, first * 64) for first in "0f"]
    for files in unreadable:
        (files.folder / "status.json").write_text("{")
    watched(site, "7" * 64)
    forget_old_watches(site.station())
    assert left(site) == {files.folder.name for files in unreadable}


def test_an_engine_that_does_not_answer_has_nothing_removed(site: FakeSite) -> None:
    site.produce()
    old = watched(site, gone())

    class Silent:
        def containers(self) -> None:
            raise EngineError("no answer")

    forget_old_watches(site.station(engine=Silent()))
    assert left(site) == {old.folder.name}
