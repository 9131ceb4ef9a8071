"""Whatever goes wrong, a person reads what, where and what to run next, never a traceback; the code is published."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lanectl.cli import app
from lanectl.errors import (
    Busy,
    CandidateFailed,
    Dark,
    ExitCode,
    LaneError,
    Problem,
    Refused,
    SpecError,
    Unfinished,
    Unreachable,
)
from tests.support.command_line import CommandLine

PROBLEMS = [Problem("lanes/a.yaml:3", "unknown key modee", "watchdog.modee", "did you mean mode?"), Problem("b", "two")]


@pytest.fixture
def lanectl(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Make `lanectl status` raise this."""

    def install(error: BaseException) -> None:
        def status() -> None:
            """Raise."""
            raise error

        monkeypatch.setitem(app.COMMANDS, "status", status)

    return install


@pytest.mark.parametrize(
    "error",
    [
        LaneError("what and where", "what to run"),
        SpecError(PROBLEMS),
        Refused(PROBLEMS, "one more hint"),
        CandidateFailed("ready:server", "EXITED", "it ended", ("last", "words")),
        Dark("DARK: pg61 is owed", "run `lanectl recover`"),
        Unfinished("left", "recover"),
        Unreachable("no route"),
        Busy("held by pid 7"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_leaves_as_words_and_its_published_code(
    lanectl: CommandLine, raising: Callable[[BaseException], None], error: LaneError
) -> None:
    raising(error)
    ended = lanectl("status")
    assert (ended.code, ended.out) == (error.exit_code, "")
    assert "Traceback" not in ended.err
    for line in error.message.splitlines():
        assert line in ended.err
    if error.hint:
        assert f"-> {error.hint}" in ended.err
    as_json = lanectl("status", "--json")
    assert (as_json.code, as_json.err) == (error.exit_code, "")
    assert as_json.json["exit_code"] == error.exit_code
    said = as_json.json["error"]
    assert (said["kind"], said["message"], said["hint"]) == (type(error).__name__, error.message, error.hint)


def test_all_problems_are_told_and_json_has_each_by_its_parts(
    lanectl: CommandLine, raising: Callable[[BaseException], None]
) -> None:
    raising(SpecError(PROBLEMS))
    assert "lanes/a.yaml:3: watchdog.modee: unknown key modee (did you mean mode?)" in lanectl("status").err
    problems = lanectl("--json", "status").json["error"]["problems"]
    assert problems[0] == {
        "where": "lanes/a.yaml:3",
        "path": "watchdog.modee",
        "message": "unknown key modee",
        "hint": "did you mean mode?",
    }


def test_a_fault_of_lanectl_is_one_line_and_its_traceback_a_private_file(
    lanectl: CommandLine,
    raising: Callable[[BaseException], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    raising(RuntimeError("it \x1b[31mbroke\nbadly"))
    ended = lanectl("status")
    assert ended.code == ExitCode.FAULT
    assert "this is a fault in lanectl: RuntimeError: it broke badly" in ended.err
    assert "Traceback" not in ended.err
    (kept,) = tmp_path.iterdir()
    assert str(kept) in ended.err
    assert "Traceback (most recent call last)" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_traceback_that_cannot_be_kept_changes_nothing_else(
    lanectl: CommandLine, raising: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not" / "there"))
    raising(RuntimeError("broke"))
    ended = lanectl("status")
    assert (ended.code, "could not be kept" in ended.err) == (ExitCode.FAULT, True)


@pytest.mark.parametrize("words", [["schema"], ["schema", "--json"], ["stauts", "--json"]], ids=" ".join)
def test_a_full_disk_under_the_output_is_told_on_stderr_and_is_no_success(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lanectl", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == (ExitCode.USAGE if "stauts" in words else ExitCode.FAULT)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    if "stauts" not in words:
        assert "the result could not be written: No space left on device" in done.stderr


@pytest.mark.parametrize("words", ["schema", "schema --json", "--help", "--version"])
@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "1</dev/null"])
def test_a_stdout_that_was_closed_before_the_start_is_told_on_stderr_and_is_no_success(closed: str, words: str) -> None:
    shell = ["sh", "-c", f'"$0" -m lanectl {words} {closed}', sys.executable]
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == ExitCode.FAULT
    assert done.stderr.startswith("error: the result could not be written: Bad file descriptor")
    assert "Traceback" not in done.stderr
    assert "fault" not in done.stderr


@pytest.mark.parametrize("words", ["--help", "--version"])
def test_help_that_a_full_disk_cuts_off_is_no_success(words: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lanectl", words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == ExitCode.FAULT
    assert done.stderr.startswith("error: the result could not be written: No space left on device")


@pytest.mark.parametrize(("closed", "code"), [("2>&-", ExitCode.OK), ("<&- >&- 2>&-", ExitCode.FAULT)])
def test_a_stderr_that_was_closed_before_the_start_loses_words_and_nothing_else(closed: str, code: ExitCode) -> None:
    shell = ["sh", "-c", f'"$0" -m lanectl schema {closed}', sys.executable]
    done = subprocess.run(shell, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, bool(done.stdout)) == (code, code is ExitCode.OK)


def test_ctrl_c_is_130(lanectl: CommandLine, raising: Callable[[BaseException], None]) -> None:
    raising(KeyboardInterrupt())
    ended = lanectl("status")
    assert (ended.code, ended.out) == (ExitCode.INTERRUPTED, "")
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ["stauts"],
        ["swap"],
        ["swap", "a", "b"],
        ["swap", "--measrue", "a"],
        ["lanes"],
        ["lanes", "lsit"],
        ["logs", "-n", "many"],
        ["logs", "-n", "-1"],
        ["health", "http://x", "--timeout", "soon"],
        ["health", "http://x", "--timeout", "0"],
        ["health", "http://x", "--timeout", "nan"],
        ["health", "http://x", "--timeout", "1e300"],
        ["health", "http://x", "--api-key-env", "NO_SUCH_VARIABLE_HERE"],
        ["health", "ftp://x"],
        ["swap", "a", "--profile", "general"],
        ["swap", "a", "--measure", "--profile", "genral"],
        ["status", "--site"],
        ["status", "--site", "/no/such/directory"],
        ["--site"],
        ["-x"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_exit_2_and_says_how_to_go_on(lanectl: CommandLine, words: list[str]) -> None:
    ended = lanectl(*words)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert ended.err.startswith("error: ")
    assert "Traceback" not in ended.err
    as_json = lanectl(*words, "--json") if words[-1] != "--site" else lanectl("--json", *words)
    assert as_json.code == ExitCode.USAGE
    assert as_json.json["error"]["message"]


def test_without_a_command_there_is_help_on_stderr(lanectl: CommandLine) -> None:
    ended = lanectl()
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "swap" in ended.err


def test_help_lists_every_command_but_the_hidden_one(lanectl: CommandLine) -> None:
    ended = lanectl("--help")
    assert ended.code == 0
    listed = re.findall(r"^  (\w+)  ", ended.out.partition("Commands:")[2], re.MULTILINE)
    assert set(listed) == {*app.COMMANDS, *app.GROUPS} - set(app.HIDDEN)


@pytest.mark.parametrize("name", sorted({*app.COMMANDS, *app.GROUPS}))
def test_every_command_explains_itself_in_one_short_line_and_more(lanectl: CommandLine, name: str) -> None:
    ended = lanectl(name, "--help")
    assert ended.code == 0
    if name not in app.HIDDEN:
        (line,) = re.findall(rf"^  {name} +(.*)$", lanectl("--help").out, re.MULTILINE)
        assert not line.endswith("..."), "help cuts it off"


def test_version_is_on_stdout(lanectl: CommandLine) -> None:
    ended = lanectl("--version")
    assert (ended.code, ended.err) == (0, "")
    assert re.fullmatch(r"lanectl \d+\.\d+\.\d+\n", ended.out)


def test_without_a_site_it_says_what_was_looked_for(
    lanectl: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "station.yaml").write_text("")
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    monkeypatch.delenv("LANECTL_SITE", raising=False)
    ended = lanectl("status")
    assert ended.code == ExitCode.USAGE
    assert all(word in ended.err for word in ("--site", "LANECTL_SITE", str(below), "station.yaml", "lanectl demo"))


def test_the_site_is_what_site_says_else_the_variable_else_this_directory(
    lanectl: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    station = "station: {}\nengine: {{kind: local}}\nports: {{public: 20001, trial: 20002}}\n"
    for name in ("here", "there", "named"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "station.yaml").write_text(station.format(name))
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("LANECTL_SITE", raising=False)
    assert json.loads(lanectl("status", "--json").out)["station"] == "here"
    monkeypatch.setenv("LANECTL_SITE", str(tmp_path / "there"))
    assert lanectl("status", "--json").json["station"] == "there"
    assert lanectl("status", "--json", "--site", "../named").json["station"] == "named"
