"""`lanectl swap` as a person and as a script see it, with real processes: asked, watched, interrupted, cut off."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.core.container import Container
from lanectl.core.journal import Kind, NeverOpened, Record
from lanectl.core.owed import Production
from lanectl.errors import ExitCode
from lanectl.store.lock import Lock
from tests.support.aftermath import is_back, untouched
from tests.support.poll import until
from tests.support.station import SOON_S, RealSite, local_site
from tests.support.terminal import Terminal

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
DIES = "exit=1:4 traceback"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RealSite]:
    with local_site(tmp_path) as site:
        yield site


@pytest.fixture
def production(site: RealSite) -> Container:
    made = site.produce()
    site.lane("cand")
    site.lane("dies", faults=DIES)
    return made


def _recorded(site: RealSite, kind: Kind, step: str) -> Record:
    """Wait until the swap after production's own has recorded this."""

    def look() -> Record | None:
        try:
            return site.record(kind, step) if len(site.journals()) > 1 else None
        except NeverOpened:  # it is being made just now
            return None

    found = until(look, SOON_S, f"{kind} {step}")
    assert found is not None
    return found


def test_without_a_terminal_a_serving_production_is_only_touched_with_yes(
    site: RealSite, production: Container
) -> None:
    done = site.lanectl("swap", "cand")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "--yes" in done.err
    untouched(site, production)


def test_progress_is_plain_lines_on_stderr_and_the_report_is_on_stdout(site: RealSite, production: Container) -> None:
    done = site.lanectl("swap", "cand", "--yes")
    assert done.code == ExitCode.OK
    lines = done.err.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d [A-Z ]{11} ", line) for line in lines), done.err
    phases = [line[9:20].strip() for line in lines]
    wanted = ["PREFLIGHT", "PREFLIGHTED", "ARMED", "QUIESCED", "BOOTED", "READY", "RELEASED"]
    assert [phase for phase in dict.fromkeys(phases) if phase] == wanted
    assert not CONTROL.search(done.err + done.out)
    assert "prod is restored and serving: it answered a real request." in done.out
    assert re.search(r"^  dark time +\d+\.\d\d  ", done.out, re.MULTILINE)
    is_back(site, production)


def test_json_is_the_only_thing_on_stdout_with_the_measured_numbers(site: RealSite, production: Container) -> None:
    done = site.lanectl("swap", "cand", "--measure", "--profile", "quick", "--yes", "--json", within_s=120)
    said = json.loads(done.out)
    assert (done.code, said["v"], said["exit_code"], said["outcome"]) == (0, 1, 0, "measured")
    assert (said["restored"], said["failure"]) == ("prod", None)
    assert said["timeline"]["dark_s"] > 0
    cells = {row["cell"] for row in said["measured"]["results"]["rows"]}
    assert cells == {"one-a", "one-b", "burst-8", "burst-32", "one-a-again", "lane"}
    assert Path(said["measured"]["path"]).is_file()
    is_back(site, production)


def test_the_candidate_dies_the_cause_comes_first_then_the_tail_then_what_serves(
    site: RealSite, production: Container
) -> None:
    done = site.lanectl("swap", "dies", "--yes")
    assert done.code == ExitCode.CANDIDATE
    first, *rest = done.out.splitlines()
    assert first.startswith("dies failed at ready:server: ")
    assert "ValueError: this failure was asked for" in first, "the cause, not the line that points to it"
    tail = [line for line in rest if line.startswith("  | ")]
    assert 0 < len(tail) <= 15
    assert tail[-1].startswith("  | RuntimeError:")
    assert rest[len(tail)] == "dies: failed:ready:server. prod is restored and serving: it answered a real request."
    assert 'File "/' not in done.out + done.err, "no stack of ours"
    is_back(site, production)


def test_the_cause_is_on_the_screen_within_a_second_of_the_exit(site: RealSite, production: Container) -> None:
    begun = site.begin("swap", "dies", "--yes")
    failed = _recorded(site, Kind.FAILED, "ready:server")
    until(lambda: "production is on its way back" in begun.output.read_text(), 1.0, "the cause is told")
    assert begun.ended().code == ExitCode.CANDIDATE
    assert failed.data["message"] in begun.output.read_text()


def test_readers_that_went_away_change_neither_the_swap_nor_its_exit_code(
    site: RealSite, production: Container
) -> None:
    argv = [sys.executable, "-m", "lanectl", "--site", str(site.root), "swap", "cand", "--yes"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
        assert process.wait(60) == ExitCode.OK
    is_back(site, production)


def test_a_report_that_cannot_be_written_does_not_change_the_exit_code(site: RealSite, production: Container) -> None:
    argv = [sys.executable, "-m", "lanectl", "--site", str(site.root), "swap", "dies", "--yes"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.CANDIDATE
    assert "the result could not be written: No space left on device" in done.stderr
    is_back(site, production)


def test_a_terminal_that_takes_no_words_any_more_changes_neither_the_swap_nor_its_exit_code(
    site: RealSite, production: Container
) -> None:
    argv = [sys.executable, "-m", "lanectl", "--site", str(site.root), "swap", "dies", "--yes"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, stdout=full, stderr=full, timeout=60, check=False)
    assert done.returncode == ExitCode.CANDIDATE
    is_back(site, production)


def test_on_a_terminal_it_asks_and_no_touches_nothing(site: RealSite, production: Container) -> None:
    with Terminal(site.root, "swap", "cand") as terminal:
        terminal.sees("Go on? [y/N]")
        assert "prod is serving" in terminal.shown
        assert "Expected outage: unknown, no earlier swap of cand" in terminal.shown
        terminal.types("n\n")
        assert terminal.ended() == ExitCode.REFUSED
    assert "nothing was touched" in terminal.shown
    untouched(site, production)


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_leaving_the_question_touches_nothing(site: RealSite, production: Container, key: str) -> None:
    with Terminal(site.root, "swap", "cand") as terminal:
        terminal.sees("Go on? [y/N]")
        terminal.types(key)
        assert terminal.ended() == (ExitCode.INTERRUPTED if key == "\x03" else ExitCode.REFUSED)
    untouched(site, production)


def test_on_a_terminal_one_live_line_says_what_goes_on(site: RealSite, production: Container) -> None:
    with Terminal(site.root, "swap", "cand") as terminal:
        terminal.sees("Go on? [y/N]")
        terminal.types("yes\n")
        assert terminal.ended() == ExitCode.OK
    assert re.search(r"READY +\d+\.\d s \(swap \d+ s\)  ", terminal.shown)
    assert "prod is restored and serving" in terminal.shown
    is_back(site, production)


def test_ctrl_c_restores_and_a_second_one_does_not_cut_that_short(site: RealSite, production: Container) -> None:
    site.lane("slow", faults="boot-delay=30")
    with Terminal(site.root, "swap", "slow", "--yes") as terminal:
        _recorded(site, Kind.BEGIN, "ready:server")
        terminal.types("\x03")
        terminal.sees("SIGINT: stopping at the next step and restoring what is owed")
        terminal.types("\x03")
        assert terminal.ended() == ExitCode.INTERRUPTED
    assert "slow: interrupted by SIGINT" in terminal.shown
    assert "prod is restored and serving" in terminal.shown
    is_back(site, production)


def test_a_closed_terminal_brings_production_back(site: RealSite, production: Container) -> None:
    site.lane("slow", faults="boot-delay=30")
    with Terminal(site.root, "swap", "slow", "--yes") as terminal:
        _recorded(site, Kind.BEGIN, "ready:server")
        terminal.close()
        assert terminal.ended() == ExitCode.INTERRUPTED
    is_back(site, production)


def test_first_use_production_started_by_hand_is_offered_for_adoption(site: RealSite, production: Container) -> None:
    station = site.station()
    station.record_production(Production())
    site.say(production="prod")
    with Terminal(site.root, "swap", "cand") as terminal:
        terminal.sees("Record it as production")
        terminal.types("y\n")
        terminal.sees("Go on? [y/N]")
        terminal.types("y\n")
        assert terminal.ended() == ExitCode.OK
    is_back(site, production)
    current = station.production().current
    assert current is not None
    assert current.adopted


def test_a_second_operator_is_told_who_is_at_work_and_how_far(site: RealSite, production: Container) -> None:
    station = site.station()
    with Lock(station.state.lock) as lock:
        lock.update(command="lanectl swap cand", swap="S-1", phase="READY")
        done = site.lanectl("swap", "cand", "--yes")
    assert (done.code, done.out) == (ExitCode.BUSY, "")
    assert all(word in done.err for word in ("lanectl swap cand", "S-1", "phase READY", "lanectl status"))
    untouched(site, production)


def test_a_detached_swap_runs_as_a_job_and_can_be_followed(site: RealSite, production: Container) -> None:
    done = site.lanectl("swap", "dies", "--yes", "--detach", "--json")
    assert done.code == ExitCode.OK
    swap = json.loads(done.out)["swap"]
    followed = site.lanectl("attach", swap)
    assert followed.code == ExitCode.CANDIDATE
    assert "RuntimeError: Engine core initialization failed" in followed.out
    until(lambda: Lock(site.station().state.lock).holder() is None, SOON_S, "the job is over")
    is_back(site, production)
