"""`lanectl attach`: what it says of a swap that is over, or that never was."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanectl.actions.attach import attach, newest
from lanectl.errors import ExitCode, LaneError
from tests.support.fake_station import FakeSite
from tests.support.station import Told


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce()
    return site


def test_a_swap_that_is_over_is_told_from_its_journal(site: FakeSite) -> None:
    station, told = site.station("attach"), Told()
    report = attach(station, newest(station), told)
    assert (report.outcome, told.phases[0], told.phases[-1]) == ("promoted", "PREFLIGHTED", "CLOSED")


def test_a_swap_that_never_was_is_a_usage_error_at_once(site: FakeSite) -> None:
    began = site.clock.monotonic()
    with pytest.raises(LaneError, match="there is no swap nope") as refused:
        attach(site.station("attach"), "nope", Told())
    assert refused.value.exit_code is ExitCode.USAGE
    assert site.clock.monotonic() == began


def test_a_site_without_swaps_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(LaneError, match="there is no swap to follow") as refused:
        newest(FakeSite(tmp_path).station("attach"))
    assert refused.value.exit_code is ExitCode.USAGE
