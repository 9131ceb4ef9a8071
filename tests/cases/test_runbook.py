"""The runbook's first page, played: what `status` says in each state, its exit code, and that the way out leads out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lanectl.actions.operation import locked, open_journal
from lanectl.core.owed import Desired, Tripped
from lanectl.errors import ExitCode
from tests.support.aftermath import serves_alone
from tests.support.command_line import CommandLine, use_site
from tests.support.documents import code_spans, rows, text
from tests.support.fake_station import WELL, FakeSite
from tests.support.fake_world import Program

DIES = Program(exits_after_s=0.1, exit_code=1)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce()
    site.lane("cand")
    use_site(site, monkeypatch)
    return site


@pytest.fixture
def lanectl(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def meanwhile() -> Iterator[ExitStack]:
    """What is true until the test ends."""
    with ExitStack() as stack:
        yield stack


def _open_swap(site: FakeSite) -> None:
    open_journal(site.station(), "20260101T000000Z-cand-000000", kind="swap", label="cand").close()


def _well(site: FakeSite, meanwhile: ExitStack) -> None:
    pass


def _at_work(site: FakeSite, meanwhile: ExitStack) -> None:
    meanwhile.enter_context(locked(site.station("swap", "cand")))
    _open_swap(site)


def _unfinished(site: FakeSite, meanwhile: ExitStack) -> None:
    _open_swap(site)


def _dark(site: FakeSite, meanwhile: ExitStack) -> None:
    """Production does not come up again; then the cause is cured."""
    site.becomes("prod", DIES)
    assert site.swap("cand").exit_code is ExitCode.DARK
    site.becomes("prod", WELL)


def _down(site: FakeSite, meanwhile: ExitStack) -> None:
    site.engine.kill("prod")


def _tripped(site: FakeSite, meanwhile: ExitStack) -> None:
    site.engine.kill("prod")
    station = site.station()
    station.record_production(replace(station.production(), tripped=Tripped(at="2026-01-01T00:00:00Z", reason="stall")))


def _stopped(site: FakeSite, meanwhile: ExitStack) -> None:
    site.engine.kill("prod")
    station = site.station()
    station.record_production(replace(station.production(), desired=Desired.STOPPED))


def _forgotten(site: FakeSite, meanwhile: ExitStack) -> None:
    (site.root / "state" / "production.json").unlink()


@dataclass(frozen=True)
class State:
    """What makes it so, what `status` exits with, and the command that the runbook gives as the way out."""

    make: Callable[[FakeSite, ExitStack], None]
    code: ExitCode
    way_out: tuple[str, ...] = ()


STATES = {
    "serving": State(_well, ExitCode.OK),
    "a swap is at work": State(_at_work, ExitCode.OK),
    "left unfinished": State(_unfinished, ExitCode.UNFINISHED, ("recover",)),
    "DARK": State(_dark, ExitCode.DARK, ("recover",)),
    "NOT proven serving": State(_down, ExitCode.FAILED, ("restart", "--yes")),
    "TRIPPED": State(_tripped, ExitCode.TRIPPED, ("restart", "--yes")),
    "stopped": State(_stopped, ExitCode.OK, ("start",)),
    "nothing is recorded as production": State(_forgotten, ExitCode.FAILED, ("adopt", "prod")),
}


def test_the_first_page_has_these_states() -> None:
    first_page = text("docs/runbook.md").partition("## Never")[0]
    assert [span for cells in rows(first_page) for span in code_spans(cells[0])] == list(STATES)


@pytest.mark.parametrize("words", STATES)
def test_status_says_so_and_the_way_out_leads_out(
    site: FakeSite, lanectl: CommandLine, meanwhile: ExitStack, words: str
) -> None:
    state = STATES[words]
    state.make(site, meanwhile)
    shown = lanectl("status")
    assert (shown.code, words in shown.out) == (state.code, True), shown
    if state.way_out:
        assert lanectl(*state.way_out).code == ExitCode.OK
        assert lanectl("status").code == ExitCode.OK
        serves_alone(site, "prod")


def test_after_a_refused_swap_status_gives_each_reason_a_line(site: FakeSite, lanectl: CommandLine) -> None:
    site.engine.kill("prod")
    with site.world.changed:
        site.world.images.clear()
    assert site.swap("cand").exit_code is ExitCode.REFUSED
    last = lanectl("status").out.partition("last swap")[2].splitlines()
    reasons = [line for line in last[1:] if line.startswith("            ")]
    assert len(reasons) >= 2
    assert last[1:] == [*reasons, last[-1]]
