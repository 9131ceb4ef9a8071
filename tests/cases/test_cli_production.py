"""`adopt`, `recover`, `stop`, `start`, `restart`, `rollback`, `units` as commands: asked first, told after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lanectl import wiring
from lanectl.core.container import Container
from lanectl.core.owed import Tripped
from lanectl.errors import ExitCode
from tests.support.aftermath import serves_alone, untouched
from tests.support.command_line import CommandLine, Printed, use_site
from tests.support.fake_engine import ENGINE_ID, FakeEngine
from tests.support.fake_station import FakeSite


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSite:
    site = FakeSite(tmp_path)
    use_site(site, monkeypatch)
    return site


@pytest.fixture
def lanectl(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def test_adopt_shows_what_it_recorded_what_differs_and_that_it_serves(site: FakeSite, lanectl: CommandLine) -> None:
    site.lane("prod", environment={"LEVEL": "1"})
    made = site.by_hand("prod", HostConfig={"NetworkMode": "host"}, Env=["LEVEL=2"])
    site.clock.sleep(1.0)
    shown = lanectl("adopt", "prod")
    assert shown.code == ExitCode.OK
    assert f"prod ({made.id[:12]}) is recorded as production prod" in shown.out
    assert "environment.LEVEL" in shown.out
    assert "serving: prod answered a real request" in shown.out
    assert lanectl("adopt", "prod", "--json").json["containers"] == [{"name": "prod", "id": made.id}]


def test_adopting_what_does_not_answer_is_told_and_exit_1(site: FakeSite, lanectl: CommandLine) -> None:
    site.lane("prod")
    site.by_hand("prod", HostConfig={"NetworkMode": "host"})  # and it does not listen yet
    shown = lanectl("adopt")
    assert (shown.code, "NOT proven serving" in shown.out) == (ExitCode.FAILED, True)


def test_recover_with_nothing_to_do_says_why(site: FakeSite, lanectl: CommandLine) -> None:
    site.produce()
    shown = lanectl("recover")
    assert (shown.code, shown.out) == (ExitCode.OK, "nothing to recover: prod is running\n")
    assert lanectl("recover", "--if-needed", "--json").json["swaps"] == []


def test_recover_starts_what_is_owed_and_down(site: FakeSite, lanectl: CommandLine) -> None:
    site.produce()
    site.engine.kill("prod")
    shown = lanectl("recover")
    assert (shown.code, "started" in shown.out) == (ExitCode.OK, True)
    serves_alone(site, "prod")


class _InterruptedEngine(FakeEngine):
    """Somebody presses Ctrl-C as this call is made."""

    def __init__(self, site: FakeSite, at: str) -> None:
        super().__init__(site.world, ENGINE_ID)
        self._at = at

    def inspect(self, ref: str) -> Container | None:
        if self._at == "inspect":
            raise KeyboardInterrupt
        return super().inspect(ref)

    def start(self, ref: str) -> None:
        if self._at == "start":
            raise KeyboardInterrupt
        super().start(ref)


def _interrupted(site: FakeSite, lanectl: CommandLine, monkeypatch: pytest.MonkeyPatch, at: str) -> Printed:
    station = site.station("recover", engine=_InterruptedEngine(site, at))
    monkeypatch.setattr(wiring, "build_station", lambda settings: station)
    shown = lanectl("recover")
    use_site(site, monkeypatch)
    return shown


def test_a_recovery_that_is_interrupted_with_no_swap_open_says_that_and_is_130(
    site: FakeSite, lanectl: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.produce()
    shown = _interrupted(site, lanectl, monkeypatch, "inspect")
    assert (shown.code, shown.out) == (ExitCode.INTERRUPTED, "")
    assert "interrupted; no swap is open" in shown.err
    assert "owed" not in shown.err
    assert lanectl("status").code == ExitCode.OK


def test_a_recovery_that_is_interrupted_names_what_is_not_finished_and_is_6(
    site: FakeSite, lanectl: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.produce()
    site.engine.kill("prod")
    shown = _interrupted(site, lanectl, monkeypatch, "start")
    assert shown.code == ExitCode.UNFINISHED
    assert f"not finished: {site.station().state.swap_ids()[-1]} at RELEASED" in shown.err
    assert lanectl("status").code == ExitCode.UNFINISHED
    assert lanectl("recover").code == ExitCode.OK
    serves_alone(site, "prod", killed=1)  # the first recover, which said what it was about to do


@pytest.mark.parametrize("verb", ["stop", "restart", "rollback"])
def test_what_stops_a_serving_production_needs_a_yes_where_nobody_can_be_asked(
    site: FakeSite, lanectl: CommandLine, verb: str
) -> None:
    site.produce()
    site.lane("cand")
    site.swap("cand", keep=True)
    before = site.seen("cand")
    shown = lanectl(verb)
    assert (shown.code, "--yes" in shown.err) == (ExitCode.USAGE, True)
    untouched(site, before)


def test_stop_start_and_restart(site: FakeSite, lanectl: CommandLine) -> None:
    site.produce()
    assert lanectl("stop", "--yes").out == "prod is stopped and stays so: `lanectl start` starts prod again\n"
    assert not site.seen("prod").running
    assert lanectl("status").code == ExitCode.OK
    shown = lanectl("start")
    assert (shown.code, "prod is production and serving" in shown.out) == (ExitCode.OK, True)
    assert lanectl("restart", "--yes", "--json").json["outcome"] == "started"
    serves_alone(site, "prod")


def test_stop_after_a_trip_names_the_command_that_starts_it_again(site: FakeSite, lanectl: CommandLine) -> None:
    site.produce()
    station = site.station()
    station.record_production(replace(station.production(), tripped=Tripped("2026-01-01T03:10:00Z", "stalled 2 s")))
    shown = lanectl("stop", "--yes")
    assert shown.out == "prod is stopped and stays so: `lanectl restart` starts prod again\n"
    assert lanectl("stop", "--yes", "--json").json["starts"] == "`lanectl restart` starts prod again"
    refused = lanectl("start")
    assert (refused.code, "`lanectl restart` starts prod again" in refused.err) == (ExitCode.TRIPPED, True)
    assert "rollback" not in refused.err, "there is nothing to go back to"
    assert lanectl("restart", "--yes").code == ExitCode.OK
    serves_alone(site, "prod")


def test_rollback_goes_back_to_the_lane_before(site: FakeSite, lanectl: CommandLine) -> None:
    site.produce()
    site.lane("cand")
    site.swap("cand", keep=True)
    shown = lanectl("rollback", "--yes")
    assert (shown.code, "prod is production and serving" in shown.out) == (ExitCode.OK, True)
    serves_alone(site, "prod")


def test_rollback_with_nothing_to_go_back_to_is_loud_and_exit_3(site: FakeSite, lanectl: CommandLine) -> None:
    before = site.produce()
    shown = lanectl("rollback", "--yes")
    assert (shown.code, "nothing to roll back to" in shown.err) == (ExitCode.REFUSED, True)
    untouched(site, site.seen(before.id))


def test_units_are_printed_and_name_the_site(site: FakeSite, lanectl: CommandLine) -> None:
    shown = lanectl("units")
    assert shown.code == ExitCode.OK
    assert "recover --if-needed" in shown.out
    assert str(site.root) in shown.out
    assert all(text.startswith("[Unit]") for text in lanectl("units", "--json").json["units"].values())
