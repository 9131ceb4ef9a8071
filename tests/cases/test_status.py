"""`lanectl status`: what an operator must be able to tell from it alone, and the exit code that goes with it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.actions.adopt import adopt
from lanectl.actions.progress import Silent
from lanectl.actions.recover import recover
from lanectl.actions.status import StatusReport, status
from lanectl.core.health import Reason
from lanectl.core.journal import Kind
from lanectl.core.owed import Desired, Tripped
from lanectl.core.swap import Phase
from lanectl.errors import Dark, EngineError, ExitCode, Unreachable
from lanectl.store.journal import RESERVED_BYTES, Journal
from lanectl.store.lock import Lock
from lanectl.store.room import unwritable
from tests.support.command_line import CommandLine, Printed, use_site
from tests.support.fake_engine import FakeEngine
from tests.support.fake_station import WELL, FakeSite
from tests.support.small_disk import fill, small_disk


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce()
    site.lane("cand")
    return site


def _opened(site: FakeSite, *, armed: bool = False, stuck: str = "") -> str:
    """Leave a swap behind whose process is gone."""
    station = site.station()
    swap = "20260101T000000Z-cand-000000"
    opened = {"lane": "cand", "kind": "swap", "command": [], "boot_id": station.boot_id, "deadline": 9e9}
    opened |= {"keep": False, "from_dark": False, "candidates": [], "shm": [], "guest": None, "supersedes": []}
    journal = Journal.create(station.state.journal(swap), station.clock, swap, opened)
    journal.append(Kind.PHASE, Phase.PREFLIGHTED)
    if armed:
        journal.append(Kind.ARMED, data={"target": None, "guard": 1})
    if stuck:
        journal.append(Kind.STUCK, data={"reason": stuck, "cause": "LaneError", "curable": False, "times": 1, "at": ""})
    journal.close()
    return swap


def _look(site: FakeSite) -> StatusReport:
    return status(site.station("status"))


def test_well_it_says_what_serves_since_when_and_that_it_answered_now(site: FakeSite) -> None:
    seen = _look(site)
    assert (seen.exit_code, seen.production, seen.next) == (ExitCode.OK, "prod", "")
    assert seen.serving is not None
    assert seen.serving.proven
    assert seen.last is not None
    assert (seen.serving.since, seen.serving.swap) == (seen.last.serving_at, seen.last.swap)


def test_after_a_measured_swap_it_says_how_long_it_was_dark_and_where_the_numbers_are(site: FakeSite) -> None:
    swapped = site.swap("cand", measure=True)
    assert swapped.report is not None
    seen = _look(site)
    assert seen.last is not None
    assert (seen.last.swap, seen.last.outcome) == (swapped.report.swap, "measured")
    assert seen.last.dark_s == swapped.report.timeline.dark_s
    assert seen.last.measured is not None
    assert Path(seen.last.measured).is_file()
    assert seen.serving is not None
    assert seen.serving.swap == swapped.report.swap


def test_after_a_failed_swap_it_says_why_in_the_logs_own_words(site: FakeSite) -> None:
    site.lane("cand", replace(WELL, exits_after_s=0.05, exit_code=3))
    assert site.swap("cand").exit_code is ExitCode.CANDIDATE
    seen = _look(site)
    assert seen.exit_code is ExitCode.OK
    assert seen.last is not None
    assert seen.last.failure is not None
    assert (seen.last.outcome, seen.last.failure.reason) == ("failed:ready:server", "EXITED")


def test_adopted_production_serves_since_its_container_was_started(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.lane("prod")
    made = site.by_hand("prod", HostConfig={"NetworkMode": "host"})
    site.clock.sleep(1.0)
    adopt(site.station(), ["prod"], None)
    seen = _look(site)
    assert (seen.adopted, seen.exit_code) == (True, ExitCode.OK)
    assert seen.serving is not None
    assert (seen.serving.since, seen.serving.swap) == (site.seen(made.id).started_at, None)


def test_a_site_without_production_is_well_and_is_told_what_to_do(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.lane("prod")
    seen = _look(site)
    assert (seen.exit_code, seen.production, seen.serving) == (ExitCode.OK, None, None)
    assert "lanectl adopt" in seen.next


def test_a_record_of_production_that_is_gone_is_not_well_and_recovery_says_dark(site: FakeSite) -> None:
    site.swap("cand")
    site.station().state.production.unlink()
    seen = _look(site)
    assert (seen.exit_code, seen.production) == (ExitCode.FAILED, None)
    assert seen.forgotten is not None
    assert "left prod serving" in seen.forgotten
    assert "adopt" in seen.next
    with pytest.raises(Dark, match="what is owed cannot be known"):
        recover(site.station("recover"), Silent(), if_needed=True)


def test_production_that_ended_is_not_proven_exit_1(site: FakeSite) -> None:
    site.engine.kill("prod")
    seen = _look(site)
    assert seen.exit_code is ExitCode.FAILED
    assert seen.serving is not None
    assert (seen.serving.proven, seen.serving.reason) == (False, Reason.EXITED)
    assert "lanectl logs" in seen.next


def test_production_that_generates_nothing_is_not_proven_exit_1(site: FakeSite) -> None:
    site.container("prod").program = replace(WELL, hangs=True)
    seen = _look(site)
    assert seen.serving is not None
    assert (seen.exit_code, seen.serving.reason) == (ExitCode.FAILED, Reason.HUNG)


class _SilentEngine(FakeEngine):
    def inspect(self, ref: str) -> None:
        raise Unreachable("no answer from the daemon")


def test_an_engine_that_does_not_answer_is_cannot_tell_exit_7(site: FakeSite) -> None:
    seen = status(site.station("status", engine=_SilentEngine(site.world)))
    assert seen.exit_code is ExitCode.UNREACHABLE


def test_stopped_on_purpose_is_well(site: FakeSite) -> None:
    station = site.station()
    site.engine.kill("prod")
    station.record_production(replace(station.production(), desired=Desired.STOPPED))
    seen = _look(site)
    assert (seen.exit_code, seen.serving, seen.desired) == (ExitCode.OK, None, "stopped")


def test_tripped_is_exit_8_and_nothing_is_asked_of_the_lane(site: FakeSite) -> None:
    station = site.station()
    station.record_production(replace(station.production(), tripped=Tripped("2026-01-01T03:10:00Z", "stalled 2 s")))
    seen = _look(site)
    assert (seen.exit_code, seen.serving) == (ExitCode.TRIPPED, None)
    assert seen.tripped == "2026-01-01T03:10:00Z: stalled 2 s"
    assert "`lanectl restart` starts prod again" in seen.next
    assert "rollback" not in seen.next, "there is nothing to go back to"


def test_tripped_names_the_lane_that_a_rollback_goes_back_to(site: FakeSite) -> None:
    site.swap("cand", keep=True)
    station = site.station()
    station.record_production(replace(station.production(), tripped=Tripped("2026-01-01T03:10:00Z", "stalled 2 s")))
    assert "`lanectl rollback` goes back to prod" in _look(site).next


def test_an_unfinished_swap_is_exit_6_and_names_the_command(site: FakeSite) -> None:
    swap = _opened(site)
    seen = _look(site)
    assert seen.exit_code is ExitCode.UNFINISHED
    assert seen.open_swap is not None
    assert (seen.open_swap.swap, seen.open_swap.phase, seen.open_swap.working) == (swap, Phase.PREFLIGHTED, False)
    assert "lanectl recover" in seen.next


def test_dark_is_exit_5_and_says_why(site: FakeSite) -> None:
    _opened(site, armed=True, stuck="the image is gone")
    seen = _look(site)
    assert seen.exit_code is ExitCode.DARK
    assert seen.open_swap is not None
    assert seen.open_swap.stuck == "the image is gone"
    assert "lanectl recover" in seen.next


def test_a_swap_at_work_is_well_and_says_who_and_how_far(site: FakeSite) -> None:
    swap = _opened(site, armed=True)
    site.engine.kill("prod")  # as the swap would have
    with Lock(site.station().state.lock) as lock:
        lock.update(command="lanectl swap cand", swap=swap, phase="READY")
        seen = _look(site)
    assert (seen.exit_code, seen.serving) == (ExitCode.OK, None)
    assert seen.open_swap is not None
    assert seen.open_swap.working
    assert all(word in str(seen.holder) for word in ("lanectl swap cand", swap, "phase READY", "user "))


def _print(site: FakeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> Printed:
    use_site(site, monkeypatch)
    return CommandLine(capsys)("status", *words)


def test_the_morning_after_is_told_by_the_screen(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = site.swap("cand", measure=True).report
    assert report is not None
    shown = _print(site, monkeypatch, capsys)
    assert (shown.code, shown.err) == (0, "")
    dark = f"{report.timeline.dark_s:.1f} s without service"
    for words in ("prod on 127.0.0.1:30006: serving", report.swap, "measured", dark, f"{report.folder}/measure"):
        assert words in shown.out


def test_json_has_the_same_and_the_exit_code(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.engine.kill("prod")
    shown = _print(site, monkeypatch, capsys, "--json")
    assert (shown.code, shown.json["v"], shown.json["exit_code"]) == (1, 1, 1)
    assert shown.json["serving"]["reason"] == "EXITED"
    assert shown.json["production"] == "prod"


@pytest.mark.parametrize("stuck", ["", "the image is gone"])
def test_the_screen_says_loudly_what_is_left_undone(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stuck: str
) -> None:
    _opened(site, armed=True, stuck=stuck)
    shown = _print(site, monkeypatch, capsys)
    assert shown.code == (ExitCode.DARK if stuck else ExitCode.UNFINISHED)
    assert ("DARK" in shown.out, stuck in shown.out) == (bool(stuck), True)
    assert "lanectl recover" in shown.out


def test_looking_changes_nothing(site: FakeSite) -> None:
    site.swap("cand")
    before = {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file()}
    containers = site.containers()
    _look(site)
    assert {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file()} == before
    assert site.containers() == containers


def test_records_that_cannot_be_read_are_an_error_not_empty(site: FakeSite) -> None:
    site.station().state.production.write_text("{")
    with pytest.raises(Exception, match="production") as error:
        _look(site)
    assert not isinstance(error.value, EngineError)


def _full(disk: Path) -> None:
    fill(disk)


def _read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


@pytest.mark.parametrize(("spoil", "why"), [(_full, "0 KiB free"), (_read_only, "mounted read-only")])
def test_a_state_that_cannot_be_written_is_a_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], None],
    why: str,
) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        if disk is None:
            pytest.skip("this user may not mount")
        site = FakeSite(disk / "site")
        site.say(thresholds={"disk_free": "1MiB"})
        site.produce()
        assert "warning" not in _print(site, monkeypatch, capsys).out
        spoil(disk)
        shown = _print(site, monkeypatch, capsys)
        assert (shown.code, shown.err) == (ExitCode.OK, "")
        (warning,) = [line for line in shown.out.splitlines() if line.startswith("warning")]
        assert why in warning
        said = _print(site, monkeypatch, capsys, "--json").json
        assert why in said["warning"]
        assert said["exit_code"] == 0


def test_a_state_of_another_user_is_a_warning(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    state = Path(tempfile.mkdtemp())  # where another user may look
    try:
        assert unwritable(state, RESERVED_BYTES) == ""
        state.chmod(0o755)
        os.seteuid(65534)
        assert "may not be written by this user" in unwritable(state, RESERVED_BYTES)
    finally:
        os.seteuid(0)
        state.rmdir()


def test_a_state_that_is_not_there_yet_is_judged_by_where_it_will_be(tmp_path: Path) -> None:
    assert unwritable(tmp_path / "state", RESERVED_BYTES) == ""
    assert unwritable(tmp_path / "state", 2**62).startswith(f"{tmp_path} has ")
