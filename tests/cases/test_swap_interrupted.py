"""A person or the system asks a swap to stop, at each point where it listens: nothing touched, or production back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanectl.actions.interrupts import SIGNALS, Interrupts
from lanectl.core.journal import Kind
from lanectl.errors import ExitCode
from tests.support.aftermath import is_back, serves_alone, untouched
from tests.support.fake_station import WELL, FakeSite
from tests.support.station import Told

WISH = {"measure": True, "keep": True}


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce(more={"drain": {"idle_for": "1s", "deadline": "5s"}})
    site.lane("cand", more={"stable_for": "2s"})
    return site


class _At(Interrupts):
    """Somebody asks when `due` says so; from then on it stays asked."""

    def __init__(self, due: Callable[[], bool]) -> None:
        super().__init__()
        self._due = due

    def check(self) -> None:
        if self.asked is None and self._due():
            self.asked = signal.SIGINT
        super().check()


def _while(site: FakeSite, step: str) -> Interrupts:
    """Somebody asks while this step is under way, or else before the next one."""
    before = len(site.journals())

    def due() -> bool:
        return len(site.journals()) > before and site.record(Kind.BEGIN, step) is not None

    return _At(due)


UNTOUCHED = ("create:server", "guard")
ARMED = ("drain", "park:server", "stop:server", "free", "start:server", "ready:server", "stable", "measure")


def test_before_the_first_step_nothing_is_touched(site: FakeSite) -> None:
    production = site.seen("prod")
    ended = site.swap("cand", interrupts=_At(lambda: True))
    assert ended.exit_code is ExitCode.INTERRUPTED
    untouched(site, production)


def test_during_the_creation_nothing_is_touched(site: FakeSite) -> None:
    production = site.seen("prod")
    ended = site.swap("cand", interrupts=_while(site, "create:server"))
    assert ended.exit_code is ExitCode.INTERRUPTED
    assert ended.report is not None
    assert ended.report.restored == "prod"
    untouched(site, production)


@pytest.mark.parametrize("step", ["guard", *ARMED])
def test_production_is_back_after_an_interrupt_while(site: FakeSite, step: str) -> None:
    production = site.seen("prod")
    ended = site.swap("cand", interrupts=_while(site, step), **WISH)
    assert (ended.exit_code, ended.outcome) == (ExitCode.INTERRUPTED, "interrupted")
    assert ended.report is not None
    assert ended.report.restored == "prod"
    is_back(site, production)


def test_once_committed_the_candidate_stays(site: FakeSite) -> None:
    """The commit is one record: an interrupt that comes too late finds a new production, and says so."""
    ended = site.swap("cand", interrupts=_while(site, "commit"), **WISH)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "promoted")
    serves_alone(site, "cand")


def test_an_interrupt_within_a_long_boot_does_not_wait_for_its_time_out(site: FakeSite) -> None:
    site.becomes("cand", replace(WELL, listens_after_s=1000.0))
    site.lane("cand", replace(WELL, listens_after_s=1000.0), ready={"timeout": "20m"})
    began = site.clock.monotonic()
    ended = site.swap("cand", interrupts=_while(site, "ready:server"))
    assert ended.outcome == "interrupted"
    assert site.clock.monotonic() - began < 60.0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_becomes_an_interrupt_and_a_second_one_changes_nothing(site: FakeSite, number: int) -> None:
    production = site.seen("prod")
    interrupts, told = Interrupts(), Told()

    def measure(**asked: Any) -> Any:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        asked["check"]()
        raise AssertionError("the check raises")

    before = [signal.getsignal(one) for one in SIGNALS]
    with interrupts.caught(told.note):
        ended = site.swap("cand", station=site.station(measure=measure), interrupts=interrupts, measure=True)
    assert [signal.getsignal(one) for one in SIGNALS] == before
    assert (ended.exit_code, ended.outcome) == (ExitCode.INTERRUPTED, "interrupted")
    assert ended.report is not None
    assert ended.report.failure is not None
    assert signal.Signals(number).name in ended.report.failure.message
    assert "restoring what is owed" in told.notes[0]
    assert "already on the way back" in told.notes[1]
    is_back(site, production)
