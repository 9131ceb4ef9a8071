"""`lanectl health` for cron: silent and 0 when well; what the site's records make of a lane that does not answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.actions.lane_health import lane_health
from lanectl.core.health import HttpSample, HttpTarget, Reason
from lanectl.core.journal import Kind
from lanectl.core.owed import Tripped
from lanectl.core.serving import Watchdog
from lanectl.core.swap import Phase
from lanectl.core.watch import Mode
from lanectl.errors import ExitCode
from lanectl.store.files import ensure_dir
from lanectl.store.journal import Journal
from lanectl.store.lock import Lock
from lanectl.store.process import this_process
from lanectl.store.watch import Status, WatchFiles, WatchSpec, watch_key
from tests.support.command_line import CommandLine, use_site
from tests.support.fake_prober import FakeProber
from tests.support.fake_station import FakeSite
from tests.support.reference import ReferenceServer


@pytest.fixture
def lanectl(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce()
    use_site(site, monkeypatch)
    return site


def _open_swap(site: FakeSite, *, deadline: float = 9e9, stuck: bool = False) -> None:
    station = site.station()
    opened = {"lane": "cand", "kind": "swap", "command": [], "boot_id": station.boot_id, "deadline": deadline}
    opened |= {"keep": False, "from_dark": False, "candidates": [], "shm": [], "guest": None, "supersedes": []}
    journal = Journal.create(station.state.journal("S-1"), station.clock, "S-1", opened)
    journal.append(Kind.PHASE, Phase.PREFLIGHTED)
    journal.append(Kind.ARMED, data={"target": None, "guard": 1})
    if stuck:
        gave_up = {"reason": "the image is gone", "cause": "NotThere", "curable": False, "times": 1, "at": ""}
        journal.append(Kind.STUCK, data=gave_up)
    journal.close()


def test_well_is_silent_and_0(lanectl: CommandLine) -> None:
    with ReferenceServer("--served-model-name", "m") as server:
        url = f"http://127.0.0.1:{server.port}"
        assert lanectl("health", url) == lanectl("health", f"{url}/v1", "--model", "m")
        shown = lanectl("health", url)
        assert (shown.code, shown.out, shown.err) == (ExitCode.OK, "", "")
        assert "READY" in lanectl("health", url, "-v").out
        said = lanectl("health", url, "--json").json
        assert (said["reason"], said["exit_code"], said["model"]) == ("READY", 0, "m")


def test_wrong_is_one_line_and_1(lanectl: CommandLine) -> None:
    with ReferenceServer("--served-model-name", "m") as server:
        shown = lanectl("health", f"http://127.0.0.1:{server.port}", "--model", "other")
    assert (shown.code, shown.out.count("\n"), shown.err) == (ExitCode.FAILED, 1, "")
    assert "WRONG_MODEL" in shown.out


def test_the_key_is_named_by_its_variable_and_never_shown(
    lanectl: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-hunter2")
    with ReferenceServer("--api-key", "sk-hunter2") as server:
        url = f"http://127.0.0.1:{server.port}"
        assert lanectl("health", url, "--api-key-env", "TEST_KEY").code == ExitCode.OK
        shown = lanectl("health", url, "--json")
        assert (shown.code, shown.json["reason"]) == (ExitCode.FAILED, "AUTH")
        assert "hunter2" not in lanectl("health", url, "--api-key-env", "TEST_KEY", "-v").out


def test_hung_is_seen_within_the_time_that_is_given(lanectl: CommandLine) -> None:
    with ReferenceServer(faults="hang=0") as server:
        shown = lanectl("health", f"http://127.0.0.1:{server.port}", "--timeout", "0.5")
    assert (shown.code, "HUNG" in shown.out) == (ExitCode.FAILED, True)


def test_a_host_that_cannot_be_found_is_7(lanectl: CommandLine) -> None:
    assert lanectl("health", "http://no-such-host.invalid").code == ExitCode.UNREACHABLE


def test_a_lane_that_serves_is_silent(lanectl: CommandLine, site: FakeSite) -> None:
    shown = lanectl("health", "prod")
    assert (shown.code, shown.out) == (ExitCode.OK, "")


def test_a_lane_that_is_down_is_1(lanectl: CommandLine, site: FakeSite) -> None:
    site.engine.kill("prod")
    assert lanectl("health", "prod").code == ExitCode.FAILED


def test_a_lane_that_a_swap_in_time_has_stopped_is_well(lanectl: CommandLine, site: FakeSite) -> None:
    site.engine.kill("prod")
    _open_swap(site)
    with Lock(site.station().state.lock):
        shown = lanectl("health", "prod", "-v")
    assert (shown.code, "a swap is in progress" in shown.out) == (ExitCode.OK, True)


def _ask_for_a_watchdog(site: FakeSite) -> None:
    """Production asks for a watchdog, and none was armed."""
    station = site.station()
    production = station.production()
    assert production.current is not None
    policy = Watchdog("/dev/shm/counters", 2.0, "enforce", "dark")
    station.record_production(replace(production, current=replace(production.current, watchdog=policy)))


def _lose_its_watchdog(site: FakeSite) -> None:
    """A watchdog that ended with the lane's containers, as after a stop."""
    station = site.station()
    current = station.production().current
    assert current is not None
    spec = WatchSpec("prod", "/dev/shm/counters", 2.0, True, (), station.site.engine)
    files = WatchFiles(station.state.watch / watch_key(current.server.container_id))
    ensure_dir(files.folder)
    files.write_spec(spec)
    files.write_status(Status(Mode.STANDBY, this_process(), None, 0.0, ended="every container of the lane is gone"))


@pytest.mark.parametrize("watch", [_ask_for_a_watchdog, _lose_its_watchdog], ids=["never armed", "ended"])
@pytest.mark.parametrize("answers", [True, False], ids=["answers", "is down"])
def test_a_watchdog_that_does_not_look_is_no_alarm_in_a_swap_in_time(
    lanectl: CommandLine, site: FakeSite, answers: bool, watch: Callable[[FakeSite], None]
) -> None:
    """It ends before the lane is stopped and is armed only as the lane comes back: every swap goes through this."""
    _ask_for_a_watchdog(site)
    watch(site)
    if not answers:
        site.engine.kill("prod")
    _open_swap(site)
    with Lock(site.station().state.lock):
        shown = lanectl("health", "prod")
    assert (shown.code, shown.out, shown.err) == (ExitCode.OK, "", "")


def test_a_watchdog_that_does_not_look_is_an_alarm_without_a_swap_and_past_its_deadline(
    lanectl: CommandLine, site: FakeSite
) -> None:
    _ask_for_a_watchdog(site)
    shown = lanectl("health", "prod")
    assert (shown.code, "its watchdog does not look" in shown.out) == (ExitCode.FAILED, True)
    _open_swap(site, deadline=0.0)
    site.clock.sleep(1.0)
    with Lock(site.station().state.lock):
        assert lanectl("health", "prod").code == ExitCode.FAILED


class _Meanwhile(FakeProber):
    """Somebody acts just before the lane is asked."""

    def __init__(self, site: FakeSite, act: Callable[[], None]) -> None:
        super().__init__(site.world)
        self._act = act

    def http(self, target: HttpTarget) -> HttpSample:
        self._act()
        return super().http(target)


def test_a_swap_that_begins_or_ends_while_the_lane_is_asked_is_no_alarm(site: FakeSite) -> None:
    lock = Lock(site.station().state.lock)

    def begin() -> None:
        lock.acquire()
        _open_swap(site)
        site.engine.kill("prod")

    began = lane_health(site.station(prober=_Meanwhile(site, begin)), "prod", None)
    assert (began.reason, began.exit_code) == (Reason.STARTING, ExitCode.OK)

    def end() -> None:
        station = site.station()
        journal = Journal.resume(station.state.journal("S-1"), station.clock)
        journal.append(Kind.PHASE, Phase.RELEASED)
        journal.append(Kind.PHASE, Phase.RESTORED)
        journal.append(Kind.CLOSED, data={"outcome": "restored"})
        journal.close()
        lock.release()

    ended = lane_health(site.station(prober=_Meanwhile(site, end)), "prod", None)
    assert (ended.reason, ended.exit_code) == (Reason.STARTING, ExitCode.OK)
    assert lane_health(site.station(), "prod", None).exit_code is ExitCode.FAILED


def test_a_swap_that_dies_while_the_lane_is_asked_is_told(site: FakeSite) -> None:
    lock = Lock(site.station().state.lock)
    lock.acquire()
    _open_swap(site)
    site.engine.kill("prod")
    died = lane_health(site.station(prober=_Meanwhile(site, lock.release)), "prod", None)
    assert died.exit_code is ExitCode.UNFINISHED


def test_a_swap_past_its_deadline_excuses_nothing(lanectl: CommandLine, site: FakeSite) -> None:
    site.engine.kill("prod")
    _open_swap(site, deadline=0.0)
    site.clock.sleep(1.0)
    with Lock(site.station().state.lock):
        assert lanectl("health", "prod").code == ExitCode.FAILED


def test_a_swap_that_died_excuses_nothing(lanectl: CommandLine, site: FakeSite) -> None:
    site.engine.kill("prod")
    _open_swap(site)
    shown = lanectl("health", "prod")
    assert shown.code == ExitCode.UNFINISHED
    assert "run `lanectl recover`" in shown.out


def test_another_lane_on_the_same_port_is_not_this_lane(lanectl: CommandLine, site: FakeSite) -> None:
    site.lane("cand")
    shown = lanectl("health", "cand")
    assert shown.code == ExitCode.FAILED
    assert "prod serves, not cand" in shown.out


def test_after_a_restore_that_gave_up_it_is_dark_5(lanectl: CommandLine, site: FakeSite) -> None:
    site.engine.kill("prod")
    _open_swap(site, stuck=True)
    shown = lanectl("health", "prod")
    assert (shown.code, shown.out.startswith("prod: DARK: the image is gone; ")) == (ExitCode.DARK, True)


def test_after_a_trip_it_is_8(lanectl: CommandLine, site: FakeSite) -> None:
    site.engine.kill("prod")
    station = site.station()
    station.record_production(replace(station.production(), tripped=Tripped("03:10", "stalled")))
    shown = lanectl("health", "prod")
    assert (shown.code, shown.out.startswith("prod: TRIPPED: at 03:10: stalled; ")) == (ExitCode.TRIPPED, True)
