"""`lanectl watch LANE`: what a person and a systemd unit see of the lane that serves."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.actions.watching import of_owed
from lanectl.core.lane import Watchdog as Policy
from lanectl.core.owed import Desired, Owed, Production
from lanectl.core.watch import Rule
from lanectl.errors import ExitCode
from lanectl.store import production
from lanectl.store.lock import Lock
from tests.support import counter_lane_process as words
from tests.support.counter_lane import STALL_S, CounterLane, counter_lane
from tests.support.owed import an_owed, an_owed_service
from tests.support.poll import until
from tests.support.station import SOON_S, RealSite

LANE = "pg61"


@pytest.fixture
def lane(on_local: RealSite) -> Iterator[CounterLane]:
    """A lane that serves as production and has no watchdog yet."""
    with counter_lane(on_local) as lane:
        lane.start_sidecar()
        lane.start_server()
        recorded(lane, owed(lane))
        yield lane


def owed(lane: CounterLane, mode: str = "enforce") -> Owed:
    services = (("sidecar", lane.sidecar), ("server", lane.server))
    bare = an_owed(*(an_owed_service(name, container_id=ref, ready=None) for name, ref in services))
    return replace(bare, watchdog=Policy(str(lane.path), STALL_S, mode, "dark"))


def recorded(lane: CounterLane, current: Owed) -> None:
    production.save(lane.station.state.production, Production(current=current))


def test_it_arms_what_is_not_armed_follows_it_and_exits_8_when_it_trips(lane: CounterLane) -> None:
    begun = lane.site.begin("watch", LANE)
    until(lambda: "armed" in begun.output.read_text(), SOON_S, "it says that it is armed")
    lane.load()
    again = lane.site.begin("watch", LANE)
    once = lane.site.lanectl("watch", LANE, "--once")
    assert (once.code, once.out.splitlines()[0]) == (0, f"watchdog of {LANE}: armed (serving)")
    lane.set(words.CALL_NS, 600 * 10**9)
    ended = [begun.ended(), again.ended()]
    assert [done.code for done in ended] == [ExitCode.TRIPPED] * 2
    assert all("tripped at" in done.out and "stall" in done.out for done in ended)
    assert all(re.search(r"counters then: published \d+, completed \d+, timeouts 0", done.out) for done in ended)
    later = lane.site.lanectl("watch", LANE, "--once", "--json")
    said = json.loads(later.out)
    assert (later.code, said["exit_code"], said["tripped"]["rule"]) == (8, 8, Rule.STALL)
    assert (said["armed"], said["tripped"]["counters"]["timeouts"]) == (False, 0)
    assert lane.site.lanectl("watch", LANE).code == ExitCode.TRIPPED, "and does not arm what a person must clear"


def test_ending_the_command_ends_no_watch(lane: CounterLane) -> None:
    begun = lane.site.begin("watch", LANE)
    until(lambda: "armed" in begun.output.read_text(), SOON_S, "it says that it is armed")
    begun.process.send_signal(signal.SIGINT)
    assert begun.ended().code == ExitCode.INTERRUPTED
    lane.quiet(0.3)


def test_one_that_was_killed_with_its_supervisor_ends_the_command_and_the_next_one_arms_another(
    lane: CounterLane,
) -> None:
    """What the systemd unit lives by: exit 1, started again, armed again."""
    begun = lane.site.begin("watch", LANE)
    until(lambda: "armed" in begun.output.read_text(), SOON_S, "it says that it is armed")
    dead = lane.files.status()
    assert dead is not None
    assert dead.supervisor is not None
    for process in (dead.supervisor, dead.watcher):
        os.kill(process.pid, signal.SIGSTOP)  # neither can replace the other
    for process in (dead.supervisor, dead.watcher):
        os.kill(process.pid, signal.SIGKILL)
    assert begun.ended().code == ExitCode.FAILED
    again = lane.site.begin("watch", LANE)
    until(lambda: "armed" in again.output.read_text(), SOON_S, "it says that it is armed")
    now = lane.files.status()
    assert now is not None
    assert now.watcher != dead.watcher
    again.process.send_signal(signal.SIGTERM)
    assert again.ended().code == -signal.SIGTERM  # how systemd ends it, and calls it clean
    lane.quiet(0.3)


def test_a_lane_that_was_stopped_on_purpose_is_not_armed(lane: CounterLane) -> None:
    production.save(lane.station.state.production, Production(current=owed(lane), desired=Desired.STOPPED))
    refused = lane.site.lanectl("watch", LANE)
    assert refused.code == ExitCode.USAGE
    assert f"{LANE} was stopped on purpose" in refused.err
    assert lane.files.spec() is None


def test_what_is_not_watched_is_said_and_nothing_is_armed_by_a_look(lane: CounterLane) -> None:
    never = lane.site.lanectl("watch", LANE, "--once")
    assert never.code == ExitCode.FAILED
    assert f"{LANE} was never watched" in never.err
    other = lane.site.lanectl("watch", "v25", "--once")
    assert other.code == ExitCode.USAGE
    assert f"production is {LANE}, not v25" in other.err
    recorded(lane, replace(owed(lane), watchdog=None))
    none = lane.site.lanectl("watch", LANE)
    assert none.code == ExitCode.USAGE
    assert "asks for no watchdog" in none.err


def test_while_somebody_changes_lanes_nothing_is_armed(lane: CounterLane) -> None:
    with Lock(lane.station.state.lock):
        assert lane.site.lanectl("watch", LANE).code == ExitCode.BUSY
    assert not Path(lane.files.folder).exists()


def test_an_observing_watchdog_says_that_it_only_observes(lane: CounterLane) -> None:
    recorded(lane, owed(lane, mode="observe"))
    begun = lane.site.begin("watch", LANE)
    lane.load()
    until(lambda: "armed" in begun.output.read_text(), SOON_S, "it says that it is armed")
    lane.set(words.CALL_NS, 600 * 10**9)
    until(lambda: lane.files.observed() is not None, SOON_S, "the stall is recorded")
    once = lane.site.lanectl("watch", LANE, "--once")
    assert once.code == 0
    assert once.out.splitlines()[0] == f"watchdog of {LANE}: armed (serving, observing only)"
    assert "would have tripped" in once.out


def test_a_stall_that_is_only_observed_changes_nothing_but_its_record_and_the_audit(lane: CounterLane) -> None:
    """Neither what production is, nor that it is started again after a crash."""
    recorded(lane, owed(lane, mode="observe"))
    before = lane.station.state.production.read_bytes()
    watchdog = of_owed(lane.station, owed(lane, mode="observe"))
    assert watchdog is not None
    watchdog.arm()
    watchdog.tighten()
    lane.load()
    lane.set(words.CALL_NS, 600 * 10**9)
    audit = lane.station.state.audit
    until(lambda: audit.exists() and '"observed"' in audit.read_text(), SOON_S, "the stall is in the audit")
    assert lane.files.observed() is not None
    assert lane.station.state.production.read_bytes() == before
    assert lane.station.production().tripped is None
    assert lane.view().armed
