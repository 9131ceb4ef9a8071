"""Containers that are not production and hold what the candidate needs; production that vanishes as it stops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.actions import engine_hints
from lanectl.core.container import Container
from lanectl.core.lane import Restart
from lanectl.core.owed import Desired
from lanectl.core.site import EngineConfig
from lanectl.errors import ExitCode, Refused
from lanectl.site.station import DOCKER_ENDPOINT
from tests.support.aftermath import is_back, untouched
from tests.support.engine_cdi import KIND, NAMES
from tests.support.fake_station import FakeSite


def _stranger(site: FakeSite, *devices: str) -> None:
    image = site.world.add_image("stranger")
    body = {"Image": image.id, "HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": list(devices)}]}}
    with site.world.changed:
        site.world.start(site.world.add("stranger", body, image, Restart()))


@pytest.mark.parametrize("device", [NAMES["gb300"], f"{KIND}=all", f"{KIND}=0"])
def test_T40_a_stranger_that_may_be_on_the_candidates_gpu_refuses_the_swap(tmp_path: Path, device: str) -> None:
    site = FakeSite(tmp_path)
    site.produce()
    before = site.seen("prod")
    site.lane("cand", devices=[NAMES["gb300"]])
    _stranger(site, device)
    ended = site.swap("cand")
    assert ended.exit_code == ExitCode.REFUSED
    assert f"stranger: it runs with {device} and is not production" in ended.words
    untouched(site, before, beside=["stranger"])


def test_T40_a_stranger_on_another_gpu_is_let_be(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.produce()
    before = site.seen("prod")
    site.lane("cand", devices=[NAMES["gb300"]])
    _stranger(site, NAMES["rtx"])
    assert site.swap("cand").exit_code == ExitCode.OK
    is_back(site, before, beside=["stranger"])


def test_a_mount_whose_name_no_disk_could_hold_is_reported_not_raised(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.produce()
    site.lane("cand", volumes=[f"/{'x' * 300}:/model:ro"])
    ended = site.swap("cand")
    assert ended.exit_code == ExitCode.REFUSED
    assert "services.server.volumes[0]" in ended.words


def _lost_record(site: FakeSite) -> Container:
    """Production serves, and the file that says so was removed."""
    site.produce()
    site.station().state.production.unlink()
    site.lane("cand", devices=[NAMES["gb300"]])
    return site.seen("prod")


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("from_dark", [False, True])
def test_without_productions_record_nothing_advises_to_stop_what_serves(
    tmp_path: Path, keep: bool, from_dark: bool
) -> None:
    site = FakeSite(tmp_path)
    before = _lost_record(site)
    ended = site.swap("cand", keep=keep, from_dark=from_dark)
    assert ended.exit_code == ExitCode.REFUSED
    assert isinstance(ended.error, Refused)
    first, *others = ended.error.problems
    assert first.where == "production"
    assert "production.json is gone: swap" in first.message
    assert "left prod serving" in first.message
    assert "put the file back" in first.hint
    assert "container prod" in [one.where for one in others]
    for problem in ended.error.problems:
        assert not any(word in str(problem) for word in ("docker", "is not production", "stop it")), problem
    assert site.seen("prod") == before


def test_a_site_that_never_recorded_production_is_not_told_to_stop_who_has_the_gpu(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.lane("cand", devices=[NAMES["gb300"]])
    _stranger(site, NAMES["gb300"])
    words = site.swap("cand", from_dark=True).words
    assert "and may be production" in words
    assert "`lanectl adopt NAME...` records what is" in words
    assert "docker" not in words


def test_without_productions_record_a_lane_may_be_booted_once_nothing_of_the_site_runs(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    _lost_record(site)
    site.engine.kill("prod")
    assert site.swap("cand").exit_code == ExitCode.REFUSED
    assert site.swap("cand", from_dark=True, keep=True).outcome == "promoted"


def test_production_that_was_stopped_and_started_by_hand_is_told_as_that(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.produce()
    station = site.station()
    station.record_production(replace(station.production(), desired=Desired.STOPPED))
    site.lane("cand")
    words = site.swap("cand", from_dark=True).words
    assert "container prod: it is of prod, which was stopped on purpose, and runs (`lanectl stop` ends it)" in words


def test_hints_name_the_engine_of_the_site(tmp_path: Path) -> None:
    """A Docker context, or the default endpoint, may be another engine; the local one has no command line."""
    site = FakeSite(tmp_path)
    site.produce()
    site.lane("cand", devices=[NAMES["gb300"]])
    _stranger(site, NAMES["gb300"])
    assert "`docker --host unix:///in/memory.sock stop stranger`" in site.swap("cand").words
    stranger = site.seen("stranger")
    station = site.station()
    default = replace(station, site=replace(station.site, engine=EngineConfig("docker", DOCKER_ENDPOINT)))
    local = replace(station, site=replace(station.site, engine=EngineConfig("local")))
    told = [
        [
            engine_hints.stop(one, stranger),
            engine_hints.give_up_name(one, stranger),
            engine_hints.show_containers(one),
            engine_hints.check(one),
        ]
        for one in (default, local)
    ]
    assert told[0][0] == "`docker stop stranger`"
    assert told[1][0] == f"`kill {stranger.pid}`"
    assert all("`docker " in hint for hint in told[0])
    assert not any("docker" in hint for hint in told[1])
