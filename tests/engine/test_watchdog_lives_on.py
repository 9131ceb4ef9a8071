"""A watchdog outlives the deaths of its own processes, or takes the lane with it; its owner's orders live on, too."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial

import pytest

from lanectl.core.watch import Mode, Rule
from lanectl.errors import ExitCode, LaneError
from lanectl.store.process import ProcessId, alive
from lanectl.store.process import signal as send
from tests.support import counter_lane_process as words
from tests.support.counter_lane import CounterLane, counter_lane
from tests.support.poll import until
from tests.support.station import SOON_S, RealSite

MS = 1_000_000
# A dead watcher is replaced within some 50 ms, a hung one after 1 s without a look; on a busy machine later.
REPLACED_WITHIN_S = 10.0
# The clock of a stall goes on while a watcher is replaced, so the trip is late by the replacement at the most.
PATIENCE_S = 5.0


@pytest.fixture
def lane(on_local: RealSite) -> Iterator[CounterLane]:
    """A lane under load and its watchdog, armed and tightened."""
    with counter_lane(on_local) as lane:
        lane.boot()
        lane.load()
        yield lane


def new_watcher(lane: CounterLane, old: ProcessId) -> ProcessId:
    """Wait for another watcher than this one; return it."""
    until(lambda: lane.status().watcher != old and lane.view().armed, REPLACED_WITHIN_S, "another watcher watches")
    return lane.status().watcher


def new_supervisor(lane: CounterLane, old: ProcessId) -> ProcessId:
    until(lambda: lane.status().supervisor not in (None, old), REPLACED_WITHIN_S, "another supervisor is there")
    found = lane.status().supervisor
    assert found is not None
    return found


def supervisor(lane: CounterLane) -> ProcessId:
    found = lane.status().supervisor
    assert found is not None
    return found


def test_a_watcher_that_dies_is_replaced_and_knows_what_the_last_one_knew(lane: CounterLane) -> None:
    lane.load(False)
    lane.site.engine.kill(lane.server)
    lane.start_server()
    until(lambda: lane.view().epoch == 2, SOON_S, "the new epoch is seen")
    old = lane.status().watcher
    send(old, signal.SIGKILL)
    new_watcher(lane, old)
    seen = lane.view()
    assert (seen.epoch, seen.mode, seen.supervised) == (2, Mode.SERVING, True)
    lane.load()
    lane.quiet(0.5)
    lane.set(words.CALL_NS, 60_000 * MS)
    assert lane.tripped().rule is Rule.STALL


def test_a_watcher_that_dies_in_the_middle_of_a_stall_does_not_give_the_lane_more_time(on_local: RealSite) -> None:
    with counter_lane(on_local, stall_s=1.0) as lane:
        lane.boot()
        lane.load()
        lane.set(words.CALL_NS, 60_000 * MS)
        deadline = lane.deadline(1.0)
        old = lane.status().watcher
        send(old, signal.SIGKILL)
        record = lane.tripped()
        assert record.rule is Rule.STALL
        assert deadline <= record.kills[0].sent < deadline + PATIENCE_S


def test_a_watcher_that_hangs_is_replaced(lane: CounterLane) -> None:
    old = lane.status().watcher
    send(old, signal.SIGSTOP)
    new_watcher(lane, old)
    assert not alive(old)
    lane.set(words.CALL_NS, 60_000 * MS)
    assert lane.tripped().rule is Rule.STALL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_no_signal_but_a_kill_ends_a_watch(lane: CounterLane, number: int) -> None:
    before = lane.status()
    send(before.watcher, number)
    send(supervisor(lane), number)
    lane.quiet(0.7)
    assert (lane.status().watcher, lane.status().supervisor) == (before.watcher, before.supervisor)


def test_a_supervisor_that_dies_is_replaced_and_its_watcher_kept(lane: CounterLane) -> None:
    before = lane.status()
    send(supervisor(lane), signal.SIGKILL)
    after = new_supervisor(lane, supervisor(lane))
    assert lane.status().watcher == before.watcher
    send(before.watcher, signal.SIGKILL)
    new_watcher(lane, before.watcher)
    assert supervisor(lane) == after
    lane.set(words.CALL_NS, 60_000 * MS)
    assert lane.tripped().rule is Rule.STALL
    until(lambda: not alive(after), SOON_S, "the supervisor ends with the watch")


def test_a_watcher_that_cannot_be_replaced_takes_the_lane_with_it(lane: CounterLane) -> None:
    """Removing the file trips by itself; here the watcher is stopped first, and the next one finds nothing to open."""
    old = lane.status().watcher
    send(old, signal.SIGSTOP)
    lane.path.unlink()
    record = lane.tripped()
    assert record.rule is Rule.UNWATCHED
    assert "open the counters" in record.reason
    assert [kill.service for kill in record.kills] == ["server", "sidecar"]


def test_a_watcher_that_dies_again_and_again_does_not_watch(lane: CounterLane) -> None:
    def gave_up(killed: ProcessId) -> bool:
        return lane.files.tripped() is not None or lane.status().watcher != killed

    while lane.files.tripped() is None:
        watcher = lane.status().watcher
        send(watcher, signal.SIGKILL)
        until(partial(gave_up, watcher), SOON_S, "another watcher, or a trip")
    assert lane.tripped().rule is Rule.UNWATCHED


def test_T51_a_watchdog_stands_by_and_is_disarmed_only_after_the_containers_are_gone(lane: CounterLane) -> None:
    lane.watchdog.stand_by()
    assert lane.view().mode is Mode.STANDBY
    assert lane.view().armed
    lane.site.engine.kill(lane.sidecar)
    with pytest.raises(LaneError, match="watched until it is gone, and server may still run"):
        lane.watchdog.end()
    assert lane.view().armed, "only half of it is gone"
    lane.site.engine.kill(lane.server)
    lane.watchdog.end()
    assert not lane.view().armed
    assert lane.files.tripped() is None
    lane.watchdog.end()
    lane.watchdog.stand_by()


def test_a_dropped_part_kills_a_lane_that_is_being_stopped_too(lane: CounterLane) -> None:
    lane.watchdog.stand_by()
    lane.set(words.SPIN_NS, 20 * MS)
    lane.signal(lane.sidecar, signal.SIGSTOP)
    record = lane.tripped()
    assert (record.rule, record.mode) == (Rule.TIMEOUT, Mode.STANDBY)


def test_an_order_that_a_dead_watcher_did_not_answer_is_followed_by_the_next_one(lane: CounterLane) -> None:
    old = lane.status().watcher
    send(old, signal.SIGSTOP)
    lane.watchdog.stand_by()
    assert lane.status().watcher != old
    assert lane.view().mode is Mode.STANDBY


def test_the_next_owner_finds_a_lane_that_was_not_stopped_after_all_and_tightens_it_again(lane: CounterLane) -> None:
    lane.watchdog.stand_by()
    watcher = lane.status().watcher
    lane.watchdog.arm()
    assert lane.view().mode is Mode.BOOT
    lane.watchdog.tighten()
    assert lane.view().mode is Mode.SERVING
    assert lane.status().watcher == watcher, "the one that watches these very processes is kept"


def test_a_lane_that_was_started_again_gets_a_watchdog_that_knows_its_new_processes(lane: CounterLane) -> None:
    """The owner died between the stop and the end: the next one starts the same containers and arms."""
    lane.watchdog.stand_by()
    watcher = lane.status().watcher
    lane.signal(lane.sidecar, signal.SIGKILL)
    until(lambda: not lane.runs(lane.sidecar), SOON_S, "the sidecar is gone")
    lane.site.engine.start(lane.sidecar)
    lane.watchdog.arm()
    assert lane.status().watcher != watcher
    assert not alive(watcher)
    lane.watchdog.tighten()
    lane.load()
    lane.quiet(0.5)
    lane.signal(lane.sidecar, signal.SIGKILL)
    assert lane.tripped().rule is Rule.SIDECAR_GONE


def test_a_lane_that_tripped_is_armed_again_only_after_a_person_cleared_it(lane: CounterLane) -> None:
    lane.set(words.CALL_NS, 60_000 * MS)
    record = lane.tripped()
    lane.set(words.CALL_NS, 0)
    lane.start_sidecar()
    for order in (lane.watchdog.arm, lane.watchdog.tighten):
        with pytest.raises(LaneError) as caught:
            order()
        assert caught.value.exit_code is ExitCode.TRIPPED
        assert record.reason in caught.value.message
    lane.watchdog.clear_trip(lane.station.state, lane.server)
    assert lane.watchdog.read(lane.station.state, lane.server) is None
    lane.watchdog.arm()
    lane.start_server()
    lane.watchdog.tighten()
    lane.load()
    lane.quiet(0.3)


def test_a_boot_is_armed_before_its_server_starts_and_tightened_once_it_answers(on_local: RealSite) -> None:
    with counter_lane(on_local) as lane:
        lane.start_sidecar()
        lane.watchdog.arm()
        assert lane.view().armed
        assert lane.view().mode is Mode.BOOT
        assert lane.status().kills == {"server": "not started", "sidecar": "pidfd"}
        with pytest.raises(LaneError, match="server does not run"):
            lane.watchdog.tighten()
        lane.start_server()
        lane.set(words.LOADED, 1)
        lane.set(words.CALL_NS, 60_000 * MS)  # a kernel that is compiled: longer than the stall of a lane that serves
        lane.quiet(1.0)
        lane.set(words.CALL_NS, 0)
        lane.signal(lane.sidecar, signal.SIGSTOP)
        assert lane.tripped().rule is Rule.SIDECAR_PAUSED
