"""`lanectl demo`: the main job end to end on the embedded engine, as a newcomer runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.errors import ExitCode
from tests.support.station import Done

# Some ten seconds on an idle machine, of which the quick measurement takes five; nothing waits this long.
WITHIN_S = 120.0


def _lanectl(*words: str) -> Done:
    argv = [sys.executable, "-m", "lanectl", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "a demo"  # what is printed must survive a copy into a shell
    yield root
    if root.exists():
        _lanectl("--site", str(root), "demo", "--stop")


def test_a_newcomer_sees_the_whole_job_and_can_go_on_playing(root: Path) -> None:
    site = ("--site", str(root))
    done = _lanectl(*site, "demo")
    assert done.code == 0, done.err
    for words in (
        "v25 is restored and serving: it answered a real request.",
        "measured over HTTP, profile quick",
        "1 stream, prompt set A / set B",
        "Try next:",
        f"lanectl --site '{root}' status",
        f"lanectl --site '{root}' demo --stop",
    ):
        assert words in done.out
    told = dict(re.findall(r"^  (MEASURED|dark time|a client saw) +([\d.]+)", done.out, re.MULTILINE))
    # Production is down at least while the candidate is measured; both must have seen that.
    assert min(float(told["dark time"]), float(told["a client saw"])) >= float(told["MEASURED"]) > 0
    assert f"$ lanectl --site '{root}' swap gracetier --measure --profile quick --yes" in done.err

    kept = [path for path in (root / "state").rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in kept if path.stat().st_mode & 0o077], "private to the user"

    again = _lanectl(*site, "demo", "--json")
    said = json.loads(again.out)
    assert (again.code, said["exit_code"], said["swap"]["outcome"]) == (0, 0, "measured")
    assert said["client"]["answers"] > 0
    assert "--keep" not in again.err, "production serves already"
    status = json.loads(_lanectl(*site, "status", "--json").out)
    assert (status["production"], status["exit_code"]) == ("v25", 0)

    assert _lanectl(*site, "stop", "--yes").code == 0
    third = _lanectl(*site, "swap", "gracetier", "--yes")
    assert third.code == ExitCode.REFUSED, "nothing serves: there is no baseline"
    stopped = _lanectl(*site, "demo", "--stop")
    assert (stopped.code, "containers stopped and removed: 2" in stopped.out) == (0, True)
    assert f"rm -r '{root}'" in stopped.out
    assert not list((root / "state" / "local" / "names").iterdir())


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "station.yaml").write_text("station: mine\n")
    done = _lanectl("--site", str(tmp_path), "demo")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "not empty" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["station.yaml"]


def test_only_a_demo_site_is_ever_taken_down(tmp_path: Path) -> None:
    station = "station: demo\nengine: {kind: local}\nports: {public: 20001, trial: 20002}\n"
    (tmp_path / "station.yaml").write_text(station)
    done = _lanectl("--site", str(tmp_path), "demo", "--stop")
    assert done.code == ExitCode.USAGE
    assert "was not made by `lanectl demo`" in done.err


def test_with_docker_nothing_is_made_without_a_yes(tmp_path: Path) -> None:
    done = _lanectl("--site", str(tmp_path / "new"), "demo", "--docker")
    assert done.code == ExitCode.USAGE
    assert "--yes" in done.err
    assert not (tmp_path / "new").exists()
