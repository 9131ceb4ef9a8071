"""The demo site: complete on any machine, for either engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lanectl.core.lane import Mount
from lanectl.reference.rowmap import read_rowmap
from lanectl.reference.weights import SHAPES
from lanectl.site.demo import CANDIDATE, PRODUCTION, write_demo_site
from lanectl.site.load import check_all, load_lane, load_site
from lanectl.site.local_rules import local_problems

DIGEST = "ab" * 32
ENVIRONMENT = f"env:/opt/with space/reference@sha256:{DIGEST}"
TWINS = (PRODUCTION, "pg61", CANDIDATE, "october", "v23")
LABELS = (*TWINS, "v25@check", f"{CANDIDATE}@dies", f"{CANDIDATE}@hangs")


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
    assert (site.engine.endpoint, site.engine.daemon_id, site.production) == ("unix:///run/demo.sock", "ABCD:1", "v25")
    assert site.reboot_recovery == "accepted"
    assert check_all(site) == []
    for label in LABELS:
        lane = load_lane(site, label, public=True)
        assert lane.missing == ()
        assert lane.server.mounts[:2] == (Mount("/usr", "/usr", True), Mount("/opt/env", "/opt/env", True))


def test_the_twins_differ_where_their_originals_do(tmp_path: Path) -> None:
    write_demo_site(tmp_path, engine="local", python="/p", image=ENVIRONMENT, ports=(1, 2))
    lanes = {name: load_lane(load_site(tmp_path), name, public=True) for name in TWINS}
    seats = {name: _option(lane.server.command, "--max-num-seqs") for name, lane in lanes.items()}
    room = {name: _option(lane.server.command, "--kv-cache-memory-bytes") for name, lane in lanes.items()}
    assert seats["v23"] < seats[CANDIDATE] <= seats[PRODUCTION]  # October's and v23's 24 seats queue a burst of 32
    assert room[CANDIDATE] == max(room.values())
    assert len({lane.served_model for lane in lanes.values()}) == 1
    assert len({lane.server.container_name for lane in lanes.values()}) == len(TWINS)
    assert {name: _word(lane.server.command, "--placement") for name, lane in lanes.items()} == {
        "v25": "sidecar",
        "pg61": "sidecar",
        "gracetier": "gracetier",
        "october": "october",
        "v23": "v23",
    }
    hot = {name: json.loads(Path(lane.map.file).read_text())["meta"]["n_hot"] for name, lane in lanes.items()}
    assert hot["v25"] == hot["v23"] == hot["october"] > hot["pg61"] == hot["gracetier"]


def test_the_maps_are_the_reference_models_and_in_the_manifest(tmp_path: Path) -> None:
    write_demo_site(tmp_path, engine="local", python="/p", image=ENVIRONMENT, ports=(1, 2))
    for name in TWINS:
        ref = load_lane(load_site(tmp_path), name, public=True).map
        assert ref is not None
        rowmap = read_rowmap(ref.file, SHAPES["small"])
        assert rowmap.sha256 == ref.sha256


def test_lanes_with_a_sidecar_are_watched_and_share_one_file_of_their_own(tmp_path: Path) -> None:
    write_demo_site(tmp_path, engine="local", python="/p", image=ENVIRONMENT, ports=(1, 2))
    files = set()
    for name in TWINS:
        lane = load_lane(load_site(tmp_path), name, public=True)
        assert (lane.watchdog is not None) == (name in {"v25", "pg61"})
        if lane.watchdog is None:
            assert (lane.shm, len(lane.services)) == ((), 1)
            continue
        assert (lane.watchdog.mode, lane.watchdog.stall_s) == ("enforce", 2.0)
        assert lane.shm == (lane.watchdog.counters,)
        assert {("VLLM_EXP_PEER2_SHM", lane.watchdog.counters)} == set.intersection(
            *(set(service.environment) for service in lane.services)
        ) - {("PYTHONUNBUFFERED", "1")}
        files.add(lane.watchdog.counters)
    assert len(files) == 2


def _option(command: tuple[str, ...] | None, name: str) -> int:
    return int(_word(command, name))


def _word(command: tuple[str, ...] | None, name: str) -> str:
    assert command is not None
    return command[command.index(name) + 1]
