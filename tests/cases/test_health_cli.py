"""`lanectl health` for cron: silent and 0 when well; what the site's records make of a lane that does not answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.core.journal import Kind
from lanectl.core.owed import Tripped
from lanectl.core.swap import Phase
from lanectl.errors import ExitCode
from lanectl.store.journal import Journal
from lanectl.store.lock import Lock
from tests.support.command_line import CommandLine, use_site
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
