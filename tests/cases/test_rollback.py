"""`rollback`: the lane that was production before serves again, and a lane that does not come up costs nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.actions.interrupts import Interrupts
from lanectl.actions.progress import Silent
from lanectl.actions.report import SwapReport
from lanectl.actions.rollback import rollback
from lanectl.errors import ExitCode, LaneError
from tests.support.aftermath import is_back, serves_alone
from tests.support.fake_station import WELL, FakeSite


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    """Lane `cand` is production, and `prod` was before."""
    site = FakeSite(tmp_path)
    site.produce("prod")
    site.lane("cand")
    assert site.swap("cand", keep=True).outcome == "promoted"
    return site


def back(site: FakeSite) -> SwapReport:
    return rollback(site.station("rollback", "--yes"), Silent(), Interrupts())


def test_the_lane_before_serves_again_in_its_own_container_and_the_way_is_open_in_both_directions(
    site: FakeSite,
) -> None:
    now = site.station().production()
    assert now.previous is not None
    parked = now.previous.services[0].container_id
    done = back(site)
    assert (done.exit_code, done.outcome, done.restored) == (ExitCode.OK, "promoted", "prod")
    serves_alone(site, "prod")
    assert site.seen("prod").id == parked
    previous = site.station().production().previous
    assert previous is not None
    assert previous.label == "cand"
    assert back(site).restored == "cand"
    serves_alone(site, "cand")


def test_a_lane_that_does_not_come_up_again_leaves_production_as_it_was(site: FakeSite) -> None:
    serving = site.seen("cand")
    site.becomes("prod", replace(WELL, hangs=True))
    done = back(site)
    assert (done.exit_code, done.restored) == (ExitCode.CANDIDATE, "cand")
    assert done.failure is not None
    assert done.failure.reason == "HUNG"
    is_back(site, serving)


def test_with_nothing_to_go_back_to_it_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    serving = site.produce("prod").id
    before = site.seen(serving)
    with pytest.raises(LaneError) as refused:
        back(site)
    assert refused.value.exit_code is ExitCode.REFUSED
    is_back(site, before)


def test_an_image_no_lane_goes_back_to_is_let_go(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.produce("first")
    for name in ("second", "third"):
        site.lane(name)
        assert site.swap(name, keep=True).outcome == "promoted"
    kept = {name: site.station().engine.image(site.images[name]) for name in ("first", "second", "third")}
    tagged = {name for name, image in kept.items() if image and any("lanectl-keep" in tag for tag in image.tags)}
    assert tagged == {"second", "third"}
