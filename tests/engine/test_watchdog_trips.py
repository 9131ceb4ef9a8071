"""A lane whose sidecar stops answering is killed, server first, on each real engine; one that works is left alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from lanectl.core.owed import Owed, Production
from lanectl.core.watch import WORDS, Mode, Rule, Sidecar
from lanectl.engine.docker import DockerEngine as Engine
from lanectl.errors import ExitCode, LaneError
from lanectl.store import production
from lanectl.store.audit import entries, verify
from lanectl.store.lock import Lock
from tests.support import counter_lane_process as words
from tests.support.counter_lane import STALL_S, CounterLane, counter_lane
from tests.support.docker_engine import DockerEngine
from tests.support.engine_api import call
from tests.support.engine_daemon import Daemon
from tests.support.engine_images import ensure_images
from tests.support.engine_packages import cache_folder
from tests.support.owed import an_owed, an_owed_service
from tests.support.poll import until
from tests.support.small_disk import fill, small_disk
from tests.support.station import SOON_S, RealSite, docker_site, local_site

MS = 1_000_000
# A trip takes some 50 ms from its deadline; a machine with a dozen busy processes needs much longer at times.
PATIENCE_S = 3.0


@pytest.fixture
def lane(site: RealSite) -> Iterator[CounterLane]:
    """A lane under load and its watchdog, armed and tightened, on each engine in turn."""
    with counter_lane(site) as lane:
        lane.boot()
        lane.load()
        yield lane


@pytest.fixture
def local(on_local: RealSite) -> Iterator[CounterLane]:
    """The same on the local engine only: for what no engine has a part in."""
    with counter_lane(on_local) as lane:
        lane.boot()
        lane.load()
        yield lane


def current(lane: CounterLane) -> Owed:
    return an_owed(
        an_owed_service("sidecar", container_id=lane.sidecar), an_owed_service("server", container_id=lane.server)
    )


def stop(lane: CounterLane) -> None:
    lane.signal(lane.sidecar, signal.SIGSTOP)


def kill(lane: CounterLane) -> None:
    lane.signal(lane.sidecar, signal.SIGKILL)


def slow_down(lane: CounterLane) -> None:
    lane.set(words.CALL_NS, 60_000 * MS)


def truncate(lane: CounterLane) -> None:
    """A page that is gone kills whoever reads its mapping, with SIGBUS: the watchdog must not be among them."""
    os.truncate(lane.path, 0)


def shorten(lane: CounterLane) -> None:
    os.truncate(lane.path, words.SIZE - 4096)


def remove(lane: CounterLane) -> None:
    lane.path.unlink()


def replace_file(lane: CounterLane) -> None:
    other = lane.path.with_suffix(".new")
    other.write_bytes(bytes(words.SIZE))
    other.replace(lane.path)


def destroy(lane: CounterLane) -> None:
    os.pwrite(lane.counters_fd, WORDS.pack(*[-1] * 7), 0)


FREEZES = [
    (stop, {Rule.STALL, Rule.SIDECAR_PAUSED}),
    (kill, {Rule.SIDECAR_GONE}),
    (slow_down, {Rule.STALL}),
    (truncate, {Rule.FILE_UNREADABLE}),
    (shorten, {Rule.FILE_UNREADABLE}),
    (remove, {Rule.FILE_UNREADABLE}),
    (replace_file, {Rule.FILE_REPLACED}),
    (destroy, {Rule.FILE_UNREADABLE}),
]


@pytest.mark.parametrize(("freeze", "rules"), FREEZES)
def test_a_lane_whose_sidecar_cannot_be_trusted_is_killed_server_first(
    lane: CounterLane, freeze: Callable[[CounterLane], None], rules: set[Rule]
) -> None:
    server = lane.process(lane.server)
    freeze(lane)
    record = lane.tripped()
    assert record.rule in rules, record
    assert record.enforced
    assert [kill.service for kill in record.kills] == ["server", "sidecar"]
    if freeze is not truncate:  # which kills the server itself
        assert record.kills[0].by == "pidfd"
    assert record.kills[0].sent <= record.kills[1].sent
    assert all(kill.gone is not None for kill in record.kills)
    assert record.counters is not None
    assert record.counters.timeouts == 0, "no cold part was dropped before the lane was killed"
    assert lane.seen(lane.server).pid in (None, server.pid)
    written = [one for one in entries(lane.station.state.audit) if one["command"] == "watch"]
    assert [one["data"]["rule"] for one in written] == [record.rule]
    assert verify(lane.station.state.audit)[1] == []


def test_a_stall_is_killed_within_its_deadline_and_a_little(lane: CounterLane) -> None:
    slow_down(lane)
    deadline = lane.deadline()
    record = lane.tripped()
    assert record.rule is Rule.STALL
    assert deadline <= record.kills[0].sent < deadline + PATIENCE_S


def test_a_dropped_part_kills_at_once_and_long_before_a_stall(on_local: RealSite) -> None:
    with counter_lane(on_local, stall_s=60.0) as lane:
        lane.boot()
        lane.load()
        lane.set(words.SPIN_NS, 20 * MS)
        lane.set(words.CALL_NS, 100 * MS)
        record = lane.tripped()
    assert record.rule is Rule.TIMEOUT
    assert record.counters is not None
    assert record.counters.timeouts >= 1


def test_a_dropped_part_of_before_the_arming_kills_at_once(on_local: RealSite) -> None:
    with counter_lane(on_local) as lane:
        lane.start_sidecar()
        lane.start_server()
        lane.set(words.TIMEOUTS, 1)
        lane.watchdog.arm()
        assert lane.tripped().rule is Rule.TIMEOUT


def test_T51_a_lane_that_idles_is_seen_armed_and_never_killed(on_local: RealSite) -> None:
    with counter_lane(on_local) as lane:
        lane.boot()
        lane.load()
        lane.load(False)
        lane.quiet(1.0)  # three stall bounds in which nothing is completed
        seen = lane.view()
        assert seen.armed
        assert seen.supervised
        assert (seen.mode, seen.epoch, seen.sidecar) == (Mode.SERVING, 1, Sidecar.RUNNING)
        assert seen.age_s is not None
        assert seen.age_s < 2.0
        assert seen.waits > 2
        assert seen.mean_wait_ms is not None


def test_T50_a_long_prefill_is_work_though_tokens_stand_still_and_a_stall_is_one_though_they_run_on(
    on_local: RealSite,
) -> None:
    """Seen at unsloth PR#9997 and continuum PR#2284. This server counts no rows and no tokens at all."""
    with counter_lane(on_local, stall_s=1.5) as lane:
        lane.boot()
        lane.load()
        lane.set(words.CALL_NS, 400 * MS)  # a call that takes long; on a busy machine three times as long
        lane.quiet(3.2)  # two stall bounds
        assert (lane.word(words.ROWS), lane.word(words.TOKENS)) == (0, 0)
        before = lane.word(words.COMPLETED)
        until(lambda: lane.word(words.COMPLETED) > before + 1, SOON_S, "calls are completed")
        lane.set(words.CALL_NS, 60_000 * MS)
        tokens = count(1)

        def tripped_among_tokens() -> bool:
            lane.set(words.TOKENS, next(tokens))
            return lane.files.tripped() is not None

        until(tripped_among_tokens, SOON_S, "the lane tripped")
        record = lane.tripped()
        assert record.rule is Rule.STALL
        assert record.counters is not None
        assert record.counters.tokens > 1


def test_a_paused_container_is_killed_though_nothing_waits_for_it(
    on_docker: RealSite, docker_engine: DockerEngine
) -> None:
    with counter_lane(on_docker, stall_s=60.0) as lane:
        lane.boot()
        call(docker_engine.url, "POST", f"/containers/{lane.sidecar}/pause")
        assert lane.tripped().rule is Rule.SIDECAR_PAUSED


def test_a_paused_container_under_load_is_killed_by_whichever_rule_sees_it_first(
    on_docker: RealSite, docker_engine: DockerEngine
) -> None:
    with counter_lane(on_docker) as lane:
        lane.boot()
        lane.load()
        call(docker_engine.url, "POST", f"/containers/{lane.sidecar}/pause")
        record = lane.tripped()
        assert record.rule in (Rule.STALL, Rule.SIDECAR_PAUSED)
        assert lane.word(words.TIMEOUTS) == 0


def test_a_sidecar_that_was_started_again_is_not_the_one_its_server_knew(on_local: RealSite) -> None:
    with counter_lane(on_local, stall_s=60.0) as lane:
        lane.boot()
        lane.site.engine.kill(lane.sidecar)
        assert lane.tripped().rule is Rule.SIDECAR_GONE


def test_a_server_that_starts_again_begins_a_new_epoch_and_is_watched_on(local: CounterLane) -> None:
    local.load(False)
    local.site.engine.kill(local.server)
    local.start_server()
    until(lambda: local.view().epoch == 2, SOON_S, "the new epoch is seen")
    local.load()
    local.quiet(0.5)
    slow_down(local)
    record = local.tripped()
    assert (record.rule, record.epoch) == (Rule.STALL, 2)
    assert record.kills[0].by == "pidfd", "the new server's process is held"


def test_a_server_that_ends_by_itself_is_no_trip_and_its_lane_is_over_once_its_sidecar_is_gone_too(
    local: CounterLane,
) -> None:
    local.site.engine.kill(local.server)
    local.quiet(2 * STALL_S)
    local.site.engine.kill(local.sidecar)
    until(lambda: "gone" in local.status().ended, SOON_S, "the watchdog has ended")
    assert local.files.tripped() is None


def test_a_watchdog_that_only_observes_records_and_kills_nobody(on_local: RealSite) -> None:
    with counter_lane(on_local, mode="observe") as lane:
        lane.boot()
        lane.load()
        slow_down(lane)
        until(lambda: lane.files.observed() is not None, SOON_S, "the stall is recorded")
        lane.quiet(1.0)
        seen = lane.view()
        assert lane.runs(lane.server)
        assert lane.runs(lane.sidecar)
        assert seen.armed
        assert seen.exit_code is ExitCode.OK
        assert seen.observed is not None
        assert (seen.observed.rule, seen.observed.enforced, seen.observed.kills) == (Rule.STALL, False, ())
        written = [one["data"] for one in entries(lane.station.state.audit) if one["command"] == "watch"]
        assert [(one["outcome"], one["rule"]) for one in written] == [("observed", "stall")], "said once, not each look"


def test_who_only_observes_goes_on_with_the_file_that_replaced_the_counters(on_local: RealSite) -> None:
    with counter_lane(on_local, mode="observe") as lane:
        lane.boot()
        lane.load()
        replace_file(lane)
        until(lambda: lane.files.observed() is not None, SOON_S, "the new file is recorded")
        with lane.path.open("r+b") as file:
            file.write(WORDS.pack(9, 9, 0, 0, 0, 0, 7))
        until(lambda: lane.view().waits == 7, SOON_S, "the new file's counters are read")
        assert lane.view().armed


def test_a_trip_of_production_is_in_its_record(local: CounterLane) -> None:
    state = local.station.state
    production.save(state.production, Production(current=current(local)))
    stop(local)
    record = local.tripped()
    recorded = production.load(state.production)
    assert recorded.tripped is not None
    assert recorded.owed is None
    assert (recorded.tripped.at, recorded.tripped.reason) == (record.at, f"{record.rule}: {record.reason}")


def test_a_trip_while_somebody_changes_lanes_leaves_production_to_them_and_is_on_disk_all_the_same(
    local: CounterLane,
) -> None:
    state = local.station.state
    production.save(state.production, Production(current=current(local)))
    with Lock(state.lock):
        stop(local)
        local.tripped()
        assert production.load(state.production).tripped is None
    assert [one["event"] for one in entries(state.audit) if one["command"] == "watch"] == ["outcome"]


def test_a_full_disk_keeps_no_lane_alive_and_no_trip_forgotten(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", pages=48) as disk:
        if disk is None:
            pytest.skip("mounting a small file system needs root")
        with local_site(disk / "site") as site, counter_lane(site) as lane:
            lane.boot()
            lane.load()
            fill(disk)
            stop(lane)
            until(lambda: lane.files.tripped() is not None, SOON_S, "the trip is recorded")
            until(lambda: not lane.runs(lane.server) and not lane.runs(lane.sidecar), SOON_S, "the lane is gone")


@pytest.fixture
def own_daemon(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[tuple[Daemon, CounterLane]]:
    """A daemon of the test's own, and a lane under load on it."""
    if not docker_engine.private:
        pytest.skip(f"{docker_engine.source} is not ours to start another engine beside")
    daemon = Daemon(tmp_path / "daemon", "watch").start()
    try:
        images = ensure_images(daemon.url, cache_folder() / "bin" / "busybox")
        real = DockerEngine(daemon.url, "the test's", daemon.id(), images, {}, None)
        with docker_site(tmp_path / "site", real, "") as site, counter_lane(site) as lane:
            lane.boot()
            lane.load()
            yield daemon, lane
            daemon.start()  # to be tidied up
    finally:
        daemon.stop()


def test_a_daemon_that_hangs_saves_no_lane(own_daemon: tuple[Daemon, CounterLane]) -> None:
    daemon, lane = own_daemon
    server, pid = lane.process(lane.server), daemon.pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        slow_down(lane)
        deadline = lane.deadline()
        until(lambda: lane.files.tripped() is not None, SOON_S, "the lane tripped")
        until(lambda: not Path(f"/proc/{server.pid}").exists(), SOON_S, "the server is gone")
        record = lane.files.tripped()
        assert record is not None
        assert record.rule is Rule.STALL
        assert record.kills[0].by == "pidfd"
        assert record.kills[0].sent < deadline + PATIENCE_S
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: bool(lane.status().ended), SOON_S, "the watchdog has ended")


def test_a_daemon_that_is_killed_changes_nothing_for_a_lane_that_works_and_saves_none_that_does_not(
    own_daemon: tuple[Daemon, CounterLane],
) -> None:
    daemon, lane = own_daemon
    server = lane.process(lane.server)
    daemon.kill()
    lane.quiet(1.0)
    slow_down(lane)
    until(lambda: lane.files.tripped() is not None, SOON_S, "the lane tripped")
    until(lambda: not Path(f"/proc/{server.pid}").exists(), SOON_S, "the server is gone")
    daemon.start()
    until(lambda: not Engine(daemon.url, None).containers({"": ""}) or not lane.runs(lane.server), SOON_S, "it ended")


def test_a_daemon_that_is_stopped_ends_both_and_what_was_seen_first_decides(
    own_daemon: tuple[Daemon, CounterLane],
) -> None:
    """It stops its containers beside each other. A sidecar that ends before its server is a trip: nobody starts that
    lane without a look. Else the lane is over."""
    daemon, lane = own_daemon
    daemon.stop()
    until(lambda: bool(lane.status().ended), SOON_S, "the watchdog has ended")
    record = lane.files.tripped()
    assert record is None or record.rule is Rule.SIDECAR_GONE


def test_what_cannot_be_armed_says_why(on_local: RealSite) -> None:
    with counter_lane(on_local) as lane:
        lane.site.engine.start(lane.sidecar)
        until(lane.path.exists, SOON_S, "the counters are there")
        lane.path.unlink()
        with pytest.raises(LaneError, match="open the counters") as caught:
            lane.watchdog.arm()
        assert caught.value.exit_code is ExitCode.REFUSED
        seen = lane.view()
        assert not seen.armed
        assert seen.exit_code is ExitCode.FAILED
