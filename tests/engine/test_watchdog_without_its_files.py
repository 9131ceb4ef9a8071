"""A watchdog that lives and looks watches its lane, whatever becomes of its files; and only one of them does."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lanectl.actions import watching
from lanectl.actions.notices import still_true
from lanectl.actions.old_watches import forget_old_watches
from lanectl.actions.status import status
from lanectl.actions.watch_life import life_of
from lanectl.actions.watch_post import is_job, job_command
from lanectl.core.lane import Watchdog as Policy
from lanectl.core.owed import Owed, Production
from lanectl.core.watch import Mode, Rule
from lanectl.errors import ExitCode, LaneError, Problem
from lanectl.store import production
from lanectl.store.lock import Lock
from lanectl.store.process import ProcessId, alive, command_words
from lanectl.store.process import signal as send
from lanectl.store.watch import Order, Wish
from tests.support import counter_lane_process as words
from tests.support.counter_lane import STALL_S, CounterLane, counter_lane
from tests.support.full_disk import FullDisk
from tests.support.owed import an_owed, an_owed_service
from tests.support.poll import until
from tests.support.small_disk import fill, small_disk
from tests.support.station import SOON_S, RealSite

LANE = "pg61"
MS = 1_000_000
PAGES = 16  # for the files of one watchdog and the space that it keeps
FOR_EVER_NS = 600 * 10**9


@pytest.fixture
def lane(on_local: RealSite) -> Iterator[CounterLane]:
    """A lane under load that is production, its watchdog armed and tightened."""
    with counter_lane(on_local, name=LANE) as lane:
        boot(lane)
        yield lane


@pytest.fixture
def full(on_local: RealSite, tmp_path: Path) -> Iterator[tuple[CounterLane, Callable[[], Path]]]:
    """The same, its watchdog's files on a disk of their own; and what fills that."""
    watch = on_local.station().state.watch
    watch.parent.mkdir(exist_ok=True)
    with small_disk(watch, PAGES) as disk:
        if disk is None:
            pytest.skip("this user may not mount")
        with counter_lane(on_local, name=LANE) as lane:
            boot(lane)
            yield lane, partial(fill, disk)


def boot(lane: CounterLane) -> None:
    lane.boot()
    lane.load()
    production.save(lane.station.state.production, Production(current=owed(lane)))


def owed(lane: CounterLane) -> Owed:
    services = (("sidecar", lane.sidecar), ("server", lane.server))
    bare = an_owed(*(an_owed_service(name, container_id=ref, ready=None) for name, ref in services))
    return replace(bare, watchdog=Policy(str(lane.path), STALL_S, "enforce", "dark"))


def processes(lane: CounterLane) -> set[int]:
    """Every process of a watchdog of this lane, however many watchdogs there are."""
    return {pid for pid, command in command_words() if is_job(command, lane.files)}


def trips(lane: CounterLane) -> None:
    lane.set(words.CALL_NS, FOR_EVER_NS)
    assert lane.tripped().rule is Rule.STALL


def kill_watchdog(lane: CounterLane) -> None:
    ids = both(lane)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for one in ids:
            assert send(one, number)
    until(lambda: not any(alive(one) for one in ids), SOON_S, "the watchdog is dead")


def both(lane: CounterLane) -> tuple[ProcessId, ProcessId]:
    seen = lane.status()
    assert seen.supervisor is not None
    return seen.supervisor, seen.watcher


def stale(lane: CounterLane) -> bool:
    return lane.view().unwritten


def remove_all(lane: CounterLane) -> None:
    shutil.rmtree(lane.files.folder.parent)


def remove(name: str, lane: CounterLane) -> None:
    (lane.files.folder / name).unlink()


def damage(name: str, lane: CounterLane) -> None:
    (lane.files.folder / name).write_text('{"x":')


LOSSES: dict[str, Callable[[CounterLane], None]] = {
    "spec removed": partial(remove, "spec.json"),
    "spec damaged": partial(damage, "spec.json"),
    "order removed": partial(remove, "control.json"),
    "order damaged": partial(damage, "control.json"),
    "all removed": remove_all,
}


@pytest.mark.parametrize("cure", ["recover", "watch"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_lost_files_are_told_and_written_again_without_an_outage(
    lane: CounterLane, loss: Callable[[CounterLane], None], cure: str
) -> None:
    before, server = processes(lane), lane.process(lane.server)
    loss(lane)
    seen = lane.view()
    assert (seen.armed, seen.sound) == (True, False), seen
    said = lane.site.lanectl("watch", LANE, "--once")
    assert "`lanectl recover` writes them again" in said.out
    if cure == "recover":
        done = lane.site.lanectl("recover", "--if-needed")
        assert (done.code, "are put right" in done.out) == (0, True), done
    else:
        begun = lane.site.begin("watch", LANE)
        until(lambda: "armed" in begun.output.read_text(), SOON_S, "it says that it is armed")
        begun.process.send_signal(signal.SIGINT)
        assert begun.ended().code == ExitCode.INTERRUPTED
    assert lane.view().sound, lane.view()
    assert (processes(lane), lane.process(lane.server)) == (before, server), "the same watchdog, the same server"
    assert lane.site.lanectl("recover", "--if-needed").out == f"nothing to recover: {LANE} is running\n"
    lane.watchdog.stand_by()
    assert lane.view().mode is Mode.STANDBY, "it follows orders again"
    lane.watchdog.arm()
    lane.watchdog.tighten()
    trips(lane)


def test_a_damaged_status_is_written_over_by_the_watchdog_itself(lane: CounterLane) -> None:
    before = processes(lane)
    damage("status.json", lane)
    lane.site.recover(lane.station)
    until(lambda: lane.view().sound, SOON_S, "it says how it is")
    assert processes(lane) == before


def test_a_watcher_that_dies_is_replaced_though_the_order_cannot_be_read(lane: CounterLane) -> None:
    damage("control.json", lane)
    old = lane.status().watcher
    send(old, signal.SIGKILL)
    until(lambda: lane.status().watcher != old and lane.view().armed, SOON_S, "another watcher looks")
    trips(lane)


def test_a_lane_whose_watchdog_cannot_be_replaced_is_killed_though_the_order_cannot_be_read(lane: CounterLane) -> None:
    damage("control.json", lane)
    send(lane.status().watcher, signal.SIGSTOP)
    lane.path.unlink()
    assert lane.tripped().rule is Rule.UNWATCHED


def test_a_watchdog_that_died_without_its_files_is_armed_from_what_production_knows(lane: CounterLane) -> None:
    server = lane.process(lane.server)
    kill_watchdog(lane)
    remove_all(lane)
    done = lane.site.lanectl("recover", "--if-needed")
    assert (done.code, done.out) == (0, f"the watchdog of {LANE} is armed now; before: it never was\n")
    assert lane.process(lane.server) == server
    trips(lane)


def test_recover_says_that_it_armed_a_watchdog_that_was_killed(lane: CounterLane) -> None:
    kill_watchdog(lane)
    done = lane.site.lanectl("recover")
    assert (done.code, done.out) == (0, f"the watchdog of {LANE} is armed now; before: its watcher is dead\n")


def test_a_folder_that_is_lost_while_its_watchdog_lives_is_no_old_one(lane: CounterLane) -> None:
    production.save(lane.station.state.production, Production())
    for name in ("status.json", "spec.json"):
        (lane.files.folder / name).unlink()
    forget_old_watches(lane.station)
    assert lane.files.folder.is_dir()


def test_of_two_watchdogs_of_a_lane_the_elder_ends_once_the_younger_watches_as_strictly(lane: CounterLane) -> None:
    """Where the second is armed by somebody who cannot see the first."""
    elder = both(lane)
    told, tell = os.pipe()
    os.set_inheritable(tell, True)
    key = lane.files.folder.name
    command = job_command(lane.station.state, key, "--ready-fd", str(tell))
    lane.station.jobs.start(command, name="another", keep_fds=(tell,), log_path=str(lane.files.log))
    os.close(tell)
    assert os.read(told, 100) == b"r"
    os.close(told)
    order = lane.files.order()
    assert order is not None
    lane.files.write_order(Order(order.seq + 1, Wish.SERVING, order.services))
    until(lambda: not any(alive(one) for one in elder), SOON_S, "the elder has ended")
    assert lane.status().watcher not in elder
    lane.quiet(0.3)
    trips(lane)


def test_a_full_disk_stops_no_lane_whose_watchdog_looks(full: tuple[CounterLane, Callable[[], Path]]) -> None:
    lane, fill_it = full
    before = processes(lane)
    fill_it()
    until(partial(stale, lane), SOON_S, "its status is old")
    seen = status(lane.station).watch
    assert seen is not None
    assert (seen.armed, seen.unwritten, seen.damage) == (True, True, "")
    for _ in range(2):
        done = lane.site.lanectl("recover", "--if-needed")
        assert (done.code, done.out) == (0, f"nothing to recover: {LANE} is running\n")
    assert (processes(lane), lane.runs(lane.server)) == (before, True)
    trips(lane)


def test_a_watcher_that_is_replaced_on_a_full_disk_is_still_a_watchdog(
    full: tuple[CounterLane, Callable[[], Path]],
) -> None:
    lane, fill_it = full
    fill_it()
    old = lane.status().watcher
    send(old, signal.SIGKILL)
    until(partial(stale, lane), SOON_S, "another one looks")
    assert lane.site.lanectl("recover", "--if-needed").code == 0
    assert lane.runs(lane.server)


def test_on_a_full_disk_with_damaged_files_the_watchdog_is_left_alone_and_that_is_said(
    full: tuple[CounterLane, Callable[[], Path]],
) -> None:
    lane, fill_it = full
    remove("spec.json", lane)
    fill_it()
    until(partial(stale, lane), SOON_S, "its status is old")
    done = lane.site.lanectl("recover", "--if-needed")
    assert done.code == 0
    assert "looks, but its files cannot be put right" in done.out
    assert lane.runs(lane.server)


def test_on_a_full_disk_a_lane_that_nobody_watches_is_stopped_and_that_is_recorded(
    full: tuple[CounterLane, Callable[[], Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the space that is kept for a trip, where production.json cannot be written either."""
    lane, fill_it = full
    kill_watchdog(lane)
    fill_it()
    monkeypatch.setattr("lanectl.actions.station.production_store.save", no_space)
    with pytest.raises(LaneError, match="was stopped") as caught:
        lane.site.recover(lane.station)
    assert caught.value.exit_code is ExitCode.TRIPPED
    assert "cannot be recorded" not in caught.value.message
    assert not lane.runs(lane.server)
    assert status(lane.station).exit_code is ExitCode.TRIPPED
    assert lane.site.recover(lane.station).nothing


def test_one_that_is_stopped_unwatched_and_unrecorded_says_so(
    lane: CounterLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_watchdog(lane)
    FullDisk(monkeypatch).fill()
    with pytest.raises(LaneError, match="that it must not be started cannot be recorded") as caught:
        lane.site.recover(lane.station)
    assert caught.value.exit_code is ExitCode.TRIPPED
    assert not lane.runs(lane.server)


def no_space(*_: object) -> None:
    raise LaneError("no space left")


def test_a_trip_whose_record_is_damaged_is_a_trip(lane: CounterLane) -> None:
    trips(lane)
    damage("tripped.json", lane)
    seen = status(lane.station)
    assert (seen.exit_code, seen.watch is not None and seen.watch.armed) == (ExitCode.TRIPPED, False)
    production.save(lane.station.state.production, Production(current=owed(lane)))
    seen = status(lane.station)
    assert seen.exit_code is ExitCode.TRIPPED
    assert "cannot be read" in str(seen.tripped)
    watching.clear_trip(lane.station, lane.server)
    assert lane.station.production().tripped is None


def test_a_watchdog_that_looks_on_under_a_server_that_ended_has_nothing_to_say(
    lane: CounterLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two looks tell: it is not waited for until it ends, which it does not while the sidecar runs."""
    lane.signal(lane.server, signal.SIGKILL)
    until(lambda: not lane.runs(lane.server), SOON_S, "the server has ended")
    monkeypatch.setattr(watching, "TRIP_ENDS_WITHIN_S", 0.0)
    assert watching.has_said(lane.station, lane.server)
    assert life_of(lane.files) is not None


def test_a_trip_under_way_is_waited_for(lane: CounterLane) -> None:
    """Its watcher has noted it, and looks no more until all is recorded."""
    lane.set(words.CALL_NS, FOR_EVER_NS)
    until(lambda: not lane.runs(lane.server), SOON_S, "the server is dead")
    assert watching.has_said(lane.station, lane.server)
    assert lane.files.tripped() is not None


def test_while_a_watchdog_is_asked_the_lock_says_so(lane: CounterLane) -> None:
    """Here it can answer nothing: both its processes are stopped."""
    ids = both(lane)
    for one in ids:
        send(one, signal.SIGSTOP)
    lane.signal(lane.server, signal.SIGKILL)
    until(lambda: not lane.runs(lane.server), SOON_S, "the server has ended")
    begun = lane.site.begin("recover")
    until(lambda: phase(lane) == "AWAIT WATCHDOG", SOON_S, "the lock says what is waited for")
    begun.process.send_signal(signal.SIGINT)
    assert "asking its watchdog whether it killed it" in begun.ended().out + begun.ended().err


def phase(lane: CounterLane) -> str:
    holder = Lock(lane.station.state.lock).holder()
    return holder.phase if holder is not None else ""


def test_a_notice_before_a_swap_that_the_way_back_has_cured_is_not_repeated_after_it(lane: CounterLane) -> None:
    other = Problem("logind", "RemoveIPC is not off")
    before = (Problem("watchdog", "the watchdog of production does not look: it was never armed"), other)
    assert still_true(lane.station, before) == (other,)
    kill_watchdog(lane)
    now, kept = still_true(lane.station, before)
    assert (now.message, kept) == ("the watchdog of production does not look: its watcher is dead", other)
