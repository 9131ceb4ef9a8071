"""The demo site: complete on any machine, for either engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanectl.core.lane import Mount
from lanectl.site.demo import CANDIDATE, PRODUCTION, write_demo_site
from lanectl.site.load import check_all, load_lane, load_site
from lanectl.site.local_rules import local_problems

DIGEST = "ab" * 32
ENVIRONMENT = f"env:/opt/with space/reference@sha256:{DIGEST}"
LABELS = (PRODUCTION, CANDIDATE, "v23", f"{CANDIDATE}@dies", f"{CANDIDATE}@hangs")


@pytest.mark.parametrize("label", LABELS)
def test_the_local_demo_is_complete_and_runs_on_the_local_engine(tmp_path: Path, label: str) -> None:
    write_demo_site(tmp_path, engine="local", python="/opt/a b/bin/python", image=ENVIRONMENT, ports=(8101, 8102))
    site = load_site(tmp_path)
    assert check_all(site) == []
    lane = load_lane(site, label, public=False)
    assert lane.missing == ()
    assert local_problems(lane) == []
    assert lane.server.image == ENVIRONMENT
    assert lane.server.entrypoint == ("/opt/a b/bin/python", "-m", "lanectl.reference.server")
    words = lane.server.command or ()
    assert words[:4] == ("--host", "127.0.0.1", "--port", "8102")


def test_the_demo_on_docker_takes_an_image_and_binds(tmp_path: Path) -> None:
    write_demo_site(
        tmp_path / "new" / "site",
        engine="docker",
        python="/usr/bin/python3",
        image=f"sha256:{DIGEST}",
        ports=(8101, 8102),
        endpoint="unix:///run/demo.sock",
        daemon_id="ABCD:1",
        binds=["/usr:/usr:ro", "/opt/env:/opt/env:ro"],
    )
    site = load_site(tmp_path / "new" / "site")
    assert (site.engine.endpoint, site.engine.daemon_id, site.production) == ("unix:///run/demo.sock", "ABCD:1", "pg61")
    assert site.reboot_recovery == "accepted"
    assert check_all(site) == []
    for label in LABELS:
        lane = load_lane(site, label, public=True)
        assert lane.missing == ()
        assert lane.server.mounts == (Mount("/usr", "/usr", True), Mount("/opt/env", "/opt/env", True))


def test_the_twins_differ_where_their_originals_do(tmp_path: Path) -> None:
    write_demo_site(tmp_path, engine="local", python="/p", image=ENVIRONMENT, ports=(1, 2))
    lanes = {name: load_lane(load_site(tmp_path), name, public=True) for name in (PRODUCTION, CANDIDATE, "v23")}
    seats = {name: _option(lane.server.command, "--max-num-seqs") for name, lane in lanes.items()}
    room = {name: _option(lane.server.command, "--kv-cache-memory-bytes") for name, lane in lanes.items()}
    assert seats["v23"] < seats[CANDIDATE] <= seats[PRODUCTION]  # October's and v23's 24 seats queue a burst of 32
    assert room[CANDIDATE] == max(room.values())
    assert len({lane.served_model for lane in lanes.values()}) == 1
    assert len({lane.server.container_name for lane in lanes.values()}) == 3


def _option(command: tuple[str, ...] | None, name: str) -> int:
    assert command is not None
    return int(command[command.index(name) + 1])
