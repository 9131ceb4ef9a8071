"""Containers that are not production and hold what the candidate needs; production that vanishes as it stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanectl.core.lane import Restart
from lanectl.errors import ExitCode
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
