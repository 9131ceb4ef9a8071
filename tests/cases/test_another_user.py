"""Run as a user who may not read the site's state, every command says that, with its published code.

In this very process with its rights given up: another user may not be able to read this interpreter's modules, which
each command has loaded when it ran as the owner first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lanectl.errors import ExitCode, LaneError
from lanectl.settings import site_root
from tests.support.command_line import CommandLine, use_site
from tests.support.fake_station import FakeSite

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

LOOKING = [
    ("status",),
    ("status", "--json"),
    ("health", "prod"),
    ("plan", "cand"),
    ("attach",),
    ("attach", "SWAP"),
    ("logs",),
    ("logs", "cand"),
    ("audit", "log"),
    ("audit", "verify"),
    ("watch", "prod", "--once"),
]
# What changes the site and asks first looks at what would be stopped.
STOPPING = [("stop", "--yes"), ("restart", "--yes"), ("rollback", "--yes"), ("swap", "cand", "--yes")]
# What is refused since it cannot take the lock, or cannot see whether it may.
LOCKING = [("recover",), ("recover", "--if-needed"), ("start",), ("adopt", "prod")]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSite:
    site = FakeSite(tmp_path / "site")
    site.produce()
    site.lane("cand")
    site.swap("cand")
    use_site(site, monkeypatch)
    for folder in (site.root, *(parent for parent in site.root.parents if parent.stat().st_uid == os.geteuid())):
        if folder not in (Path("/"), Path("/tmp")):
            folder.chmod(folder.stat().st_mode | 0o055)
    return site


@pytest.fixture
def lanectl(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def _open_up(state: Path, opened: str) -> None:
    """How far another user may look: into nothing of the state, into its folder, into all folders but no file."""
    folders = {"nothing": [], "its folder": [state], "every folder": [state, *state.rglob("*")]}[opened]
    for folder in folders:
        if folder.is_dir():
            folder.chmod(0o755)


@pytest.mark.parametrize("opened", ["nothing", "its folder", "every folder"])
@pytest.mark.parametrize("words", [*LOOKING, *STOPPING, *LOCKING], ids=" ".join)
def test_the_wrong_user_is_told_so(site: FakeSite, lanectl: CommandLine, words: tuple[str, ...], opened: str) -> None:
    swap = site.station().state.swap_ids()[-1]
    words = tuple(swap if word == "SWAP" else word for word in words)
    lanectl(*words)  # as its owner, which loads what it needs
    lanectl("--json", *words)
    _open_up(site.root / "state", opened)
    with as_nobody():
        shown = lanectl(*words)
    told = shown.json["error"]["message"] + shown.json["error"]["hint"] if "--json" in words else shown.err
    assert shown.code == (ExitCode.REFUSED if words in LOCKING else ExitCode.UNREACHABLE), shown
    assert "Permission denied" in told
    assert "run lanectl as the user who owns the site's state" in told
    assert "Traceback" not in shown.err


def test_a_directory_that_may_not_be_looked_into_is_no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o700)
    monkeypatch.chdir(shut)
    with as_nobody(), pytest.raises(LaneError, match="this directory cannot be read: Permission denied"):
        site_root(None, {})


@pytest.mark.parametrize("words", [("status",), ("lanes", "list"), ("lanes", "validate"), ("recover",)], ids=" ".join)
@pytest.mark.parametrize("shut", [".", "station.yaml"])
def test_a_site_that_may_not_be_read_is_told_so(
    site: FakeSite, lanectl: CommandLine, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], shut: str
) -> None:
    lanectl(*words)
    monkeypatch.undo()  # the command itself reads the site
    lanectl("--site", str(site.root), *words)
    (site.root / shut).chmod(0o700)
    with as_nobody():
        shown = lanectl("--site", str(site.root), *words)
    assert (shown.code, "Permission denied" in shown.err) == (ExitCode.USAGE, True), shown


@pytest.mark.parametrize(("words", "shut"), [(("demo",), "."), (("demo",), "state"), (("demo", "--stop"), "state")])
def test_another_users_demo_is_let_be(site: FakeSite, lanectl: CommandLine, words: tuple[str, ...], shut: str) -> None:
    lanectl("--site", str(site.root), *words)  # no demo: refused, and loads what it needs
    (site.root / "state" / "demo").write_text("")
    (site.root / shut).chmod(0o700)
    with as_nobody():
        shown = lanectl("--site", str(site.root), *words)
    assert shown.code == ExitCode.UNREACHABLE, shown
    assert "Permission denied" in shown.err
