"""The guard is killed in the middle of a swap: nothing is stopped without it, and what goes on says that it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lanectl.actions.guard import UNGUARDED
from lanectl.actions.interrupts import Interrupts
from lanectl.actions.progress import Silent
from lanectl.actions.rollback import rollback
from lanectl.actions.start import restart
from lanectl.actions.station import Station
from lanectl.core.journal import Kind
from lanectl.errors import ExitCode, LaneError
from lanectl.store.audit import entries
from tests.support.aftermath import is_back, serves_alone, untouched
from tests.support.fake_station import FakeSite
from tests.support.guards import MortalGuards
from tests.support.hooked_engine import HookedEngine
from tests.support.station import Ended, Told


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce(more={"drain": {"idle_for": "1s", "deadline": "5s"}})
    site.lane("cand", more={"stable_for": "2s"})
    return site


@pytest.fixture
def guards() -> Iterator[MortalGuards]:
    guards = MortalGuards()
    yield guards
    guards.kill()


def _killed_after(site: FakeSite, guards: MortalGuards, call: str, *words: str) -> Station:
    """A Station whose guard is killed right after the first such call of the engine."""
    engine = HookedEngine(site.station().engine).after(call, lambda ref: guards.kill())
    return site.station(*words, jobs=guards, engine=engine)


def _said(ended: Ended) -> list[str]:
    return [note for note in ended.told.notes if "the guard died" in note]


def test_a_guard_that_lives_is_not_spoken_of(site: FakeSite, guards: MortalGuards) -> None:
    ended = site.swap("cand", station=site.station("swap", jobs=guards))
    assert (ended.exit_code, _said(ended)) == (ExitCode.OK, [])
    assert site.record(Kind.DONE, UNGUARDED) is None


def test_a_guard_that_dies_before_production_is_owed_refuses_the_swap(site: FakeSite, guards: MortalGuards) -> None:
    before = site.seen("prod")
    ended = site.swap("cand", station=_killed_after(site, guards, "keep_image", "swap"))
    assert (ended.exit_code, ended.report) == (ExitCode.REFUSED, None)
    assert "died before production was stopped" in ended.words
    assert site.record(Kind.ARMED) is None
    untouched(site, before)


def _killed_in_the_drain(site: FakeSite, guards: MortalGuards) -> Station:
    def asked(url: str, key: str | None) -> int:
        guards.kill()
        return 0

    return site.station("swap", jobs=guards, in_flight=asked)


def _killed_as_it_is_parked(site: FakeSite, guards: MortalGuards) -> Station:
    return _killed_after(site, guards, "set_restart", "swap")


@pytest.mark.parametrize("kill", [_killed_in_the_drain, _killed_as_it_is_parked])
def test_a_guard_that_dies_before_the_stop_ends_the_swap_and_production_is_not_stopped(
    site: FakeSite, guards: MortalGuards, kill: Callable[[FakeSite, MortalGuards], Station]
) -> None:
    before = site.seen("prod")
    ended = site.swap("cand", station=kill(site, guards))
    assert (ended.exit_code, ended.outcome) == (ExitCode.REFUSED, "failed:guard")
    assert "died before production was stopped" in str(ended.told.notes)
    assert site.record(Kind.BEGIN, "stop:server") is None
    untouched(site, before)


@pytest.mark.parametrize("call", ["stop", "start"])
@pytest.mark.parametrize("keep", [False, True])
def test_a_guard_that_dies_later_is_told_once_and_recorded(
    site: FakeSite, guards: MortalGuards, call: str, keep: bool
) -> None:
    before = site.seen("prod")
    ended = site.swap("cand", station=_killed_after(site, guards, call, "swap"), keep=keep)
    assert ended.exit_code is ExitCode.OK
    assert len(_said(ended)) == 1
    assert "`lanectl recover` restores what is owed" in _said(ended)[0]
    record = site.record(Kind.DONE, UNGUARDED)
    assert record is not None
    assert ended.report is not None
    assert ended.report.notices == (f"its guard died: from {record.data['phase']} on it went on unguarded",)
    *_, outcome = entries(site.station().state.audit)
    assert outcome["data"]["unguarded"] == record.data["phase"]
    if keep:
        serves_alone(site, "cand")
    else:
        is_back(site, before)


def test_a_guard_that_dies_and_a_candidate_that_fails_are_both_told(site: FakeSite, guards: MortalGuards) -> None:
    """The way back is as unguarded as what it comes from."""
    before = site.seen("prod")

    def broken(**asked: object) -> object:
        guards.kill()
        raise LaneError("no numbers")

    site.measure = broken
    ended = site.swap("cand", station=site.station("swap", jobs=guards), measure=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.CANDIDATE, "failed:measure")
    assert len(_said(ended)) == 1
    is_back(site, before)


def test_a_rollback_is_held_to_the_same(site: FakeSite, guards: MortalGuards) -> None:
    assert site.swap("cand", keep=True).exit_code is ExitCode.OK
    before = site.seen("cand")
    refused = rollback(_killed_after(site, guards, "set_restart", "rollback"), Silent(), Interrupts())
    assert (refused.exit_code, refused.outcome) == (ExitCode.REFUSED, "failed:guard")
    assert site.seen("cand") == before
    told = Told()
    report = rollback(_killed_after(site, guards, "stop", "rollback"), told, Interrupts())
    assert report.exit_code is ExitCode.OK
    assert [note for note in told.notes if "the guard died" in note]
    serves_alone(site, "prod")


def test_a_restart_is_told_too(site: FakeSite, guards: MortalGuards) -> None:
    told = Told()
    report = restart(_killed_after(site, guards, "stop", "restart"), told)
    assert report.exit_code is ExitCode.OK
    assert len([note for note in told.notes if "the guard died" in note]) == 1
    assert report.notices
    serves_alone(site, "prod")
