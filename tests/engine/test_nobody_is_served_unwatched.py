"""T51 (patroni#2296): everybody sees whether the watchdog is armed, and a lane that nobody watches serves nobody."""

from __future__ import annotations

import json
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lanectl.core.journal import Kind
from lanectl.errors import ExitCode, LaneError
from lanectl.ports import ContainerEngine
from lanectl.store import process
from lanectl.store.process import ProcessId
from lanectl.store.watch import watch_key
from tests.support.asking import ask
from tests.support.frozen import LANE, PROMPTS, FrozenLane, WatchdogsOnly, write_lane
from tests.support.poll import until
from tests.support.station import SOON_S, RealSite

PROMPT = PROMPTS[0]
REPLACED_WITHIN_S = 1.0
# Between a recovery's begin and its first start: two looks of the watchdog, the wait for the port, a new watchdog. Some
# two seconds; on a busy machine several times that, and far below the 100 s that a trip may take to end.
ASKED_WITHIN_S = 30.0
DEATHS = 3  # of them the quickest counts: on a busy machine any single one may be late; five in a minute are a trip


class NoWatchdogs(WatchdogsOnly):
    """Guards are ready at once; a watchdog cannot be started."""

    def start(self, argv: Sequence[str], *, name: str, keep_fds: Sequence[int], log_path: str) -> int:
        if "watch" in name:
            raise LaneError(f"the job {name} could not be started: no more processes", None, ExitCode.REFUSED)
        return super().start(argv, name=name, keep_fds=keep_fds, log_path=log_path)


class Timed:
    """An engine that remembers when it was asked to start something."""

    def __init__(self, engine: ContainerEngine) -> None:
        self._engine = engine
        self.started_at = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def start(self, ref: str) -> None:
        self.started_at = self.started_at or time.monotonic()
        self._engine.start(ref)


@pytest.fixture
def lane(on_local: RealSite) -> Iterator[FrozenLane]:
    made = FrozenLane(on_local)
    yield made
    made.close()


@pytest.fixture
def lane_anywhere(site: RealSite) -> Iterator[FrozenLane]:
    """A lane that serves, on each engine in turn."""
    made = FrozenLane(site)
    yield made
    made.close()


def both(lane: FrozenLane) -> tuple[ProcessId, ProcessId]:
    status = lane.watch()
    assert status.supervisor is not None
    return status.supervisor, status.watcher


def kill_watchdog(lane: FrozenLane) -> None:
    """Kill both its processes; stopped first, neither can replace the other."""
    processes = both(lane)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for one in processes:
            assert process.signal(one, number)
    until(lambda: not any(process.alive(one) for one in processes), SOON_S, "the watchdog is dead")


def first_of(lane: FrozenLane, service: str) -> ProcessId:
    """Return the first process of a service that runs."""
    pid = lane.site.seen(lane.site.prefix + service).pid
    assert pid is not None
    found = process.identify(pid)
    assert found is not None
    return found


def another_watcher(lane: FrozenLane, old: ProcessId) -> bool:
    return lane.watch().watcher != old


def test_T51_status_shows_that_it_is_armed_and_when_it_looked_and_that_it_is_not(lane: FrozenLane) -> None:
    done = lane.site.lanectl("status", "--json")
    seen = json.loads(done.out)["watch"]
    assert done.code == 0
    assert (seen["armed"], seen["mode"], seen["sidecar"]) == (True, "serving", "running")
    assert 0 <= seen["age_s"] < 2
    assert "last look 0." in lane.site.lanectl("status").out
    kill_watchdog(lane)
    done = lane.site.lanectl("status", "--json")
    said = json.loads(done.out)
    assert (done.code, said["watch"]["armed"]) == (ExitCode.FAILED, False)
    assert said["watch"]["why"] == "its watcher is dead"
    assert "NOT armed: its watcher is dead" in lane.site.lanectl("status").out


def test_T51_a_lane_whose_whole_watchdog_died_is_watched_again_by_the_next_recover(lane: FrozenLane) -> None:
    kill_watchdog(lane)
    server = lane.site.seen(lane.site.prefix + "server")
    lane.site.recover(lane.station())
    assert lane.site.lanectl("status").code == 0
    assert lane.site.seen(lane.site.prefix + "server").pid == server.pid, "it went on serving"
    assert ask(lane.site.public, PROMPT).text == lane.expected[PROMPT]
    lane.signal_sidecar(signal.SIGSTOP)
    until(lane.tripped, SOON_S, "the new watchdog trips")


def test_T51_a_lane_that_cannot_be_watched_again_is_stopped(lane_anywhere: FrozenLane) -> None:
    lane = lane_anywhere
    kill_watchdog(lane)
    lane.counters.unlink()
    with pytest.raises(LaneError, match="was stopped") as caught:
        lane.site.recover(lane.station())
    assert caught.value.exit_code is ExitCode.TRIPPED
    assert not lane.runs()
    tripped = lane.tripped()
    assert tripped is not None
    assert tripped.reason.startswith("unwatched: ")
    assert lane.site.recover(lane.station()).nothing
    assert not lane.runs()
    lane.again()
    assert ask(lane.site.public, PROMPT).text == lane.expected[PROMPT]


def test_a_server_that_merely_crashed_under_its_watchdog_is_back_at_once(lane_anywhere: FrozenLane) -> None:
    """Its watchdog lives on, since the sidecar does: it is asked for two looks, not for its end."""
    lane = lane_anywhere
    assert process.signal(first_of(lane, "server"), signal.SIGKILL)
    until(lambda: not lane.site.seen(lane.site.prefix + "server").running, SOON_S, "the server is dead")
    seen = lane.site.lanectl("status", "--json")
    said = json.loads(seen.out)
    assert (seen.code, said["watch"]["armed"], said["watch"]["tripped"]) == (ExitCode.FAILED, True, None)
    assert "`lanectl recover`" in said["next"]
    begun = time.monotonic()
    engine = Timed(lane.site.engine)
    assert [outcome for _, outcome in lane.site.recover(replace(lane.station(), engine=engine)).swaps] == ["started"]
    assert 0 < engine.started_at - begun < ASKED_WITHIN_S
    assert lane.site.lanectl("status").code == 0
    assert ask(lane.site.public, PROMPT).text == lane.expected[PROMPT]
    lane.signal_sidecar(signal.SIGSTOP)
    until(lane.tripped, SOON_S, "it is watched as before")


def test_what_a_living_watchdog_lost_is_told_with_its_cure(lane: FrozenLane) -> None:
    key = watch_key(lane.site.seen(lane.site.prefix + "server").id)
    spec = lane.site.station().state.watch / key / "spec.json"
    spec.write_text('{"x":')
    seen = lane.site.lanectl("status")
    assert seen.code == ExitCode.FAILED
    assert "watchdog    armed (serving)" in seen.out
    assert f"next        `lanectl recover` or `lanectl watch {LANE}` writes them again" in seen.out
    health = lane.site.lanectl("health", LANE)
    assert health.code == ExitCode.FAILED
    assert f"its watchdog looks, but of its files {spec} is damaged" in health.out
    assert "restore it from a copy" not in seen.out + seen.err + health.out + health.err
    assert lane.site.lanectl("recover", "--if-needed").code == 0
    assert [lane.site.lanectl(*words).code for words in (["status"], ["health", LANE])] == [0, 0]


def test_T51_no_server_is_started_whose_watchdog_cannot_be_armed(on_local: RealSite) -> None:
    counters = Path(f"/dev/shm/lt-frozen-{secrets.token_hex(6)}")
    write_lane(on_local, counters)
    station = replace(on_local.station("swap", LANE), jobs=NoWatchdogs())
    ended = on_local.swap(LANE, station=station, keep=True, from_dark=True)
    assert ended.exit_code is not ExitCode.OK
    assert "no more processes" in ended.words
    assert on_local.record(Kind.DONE, "start:sidecar") is not None
    assert on_local.record(Kind.BEGIN, "start:server") is None
    assert on_local.ask() is None
    assert not any(one.running for one in on_local.containers().values())
    counters.unlink(missing_ok=True)


def test_a_watcher_killed_under_a_lane_that_works_is_replaced_within_a_second(lane: FrozenLane) -> None:
    took = []
    for _ in range(DEATHS):
        supervisor, old = both(lane)
        began = time.monotonic()
        assert process.signal(old, signal.SIGKILL)
        until(partial(another_watcher, lane, old), SOON_S, "another watcher looks")
        took.append(time.monotonic() - began)
        assert both(lane)[0] == supervisor
        assert ask(lane.site.public, PROMPT).text == lane.expected[PROMPT]
    assert min(took) < REPLACED_WITHIN_S, took
