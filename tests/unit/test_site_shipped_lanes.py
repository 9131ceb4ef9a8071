"""The lanes this repository ships: what the articles print is in them, what they do not print is asked for by name."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from lanectl.core.lane import Lane
from lanectl.core.site import Site
from lanectl.engine.create import create_args
from lanectl.site.load import check_all, load_lane, load_site
from lanectl.site.manifest import read_manifest
from tests.support.site_dir import REPOSITORY, uncommented_example

SHIPPED = ("gracetier", "october", "pg61", "v23", "v25", "vllm-cpu")
EXAMPLE = (REPOSITORY / "station.example.yaml").read_text()
EVERY = (*SHIPPED, "gracetier@hot275", "v25@check")

# The command of "DeepSeek-V4.1-Flash on a GB300 + RTX PRO 6000 Sidecar" (October 22, 2026), server part, as printed.
PRINTED_SERVER = r"""
--membind=0 vllm serve --model /model
  --served-model-name dsv41-flash-uva --trust-remote-code
  --moe-backend deep_gemm_mega_moe --enable-expert-parallel --engram-config '{"cpu_offload": true}'
  --max-model-len 1048576 --max-num-seqs 32 --max-num-batched-tokens 8192
  --gpu-memory-utilization 0.97 --kv-cache-dtype fp8_ds_mla
  --long-prefill-token-threshold 6144 --enable-prefix-caching
  --tool-call-parser deepseek_v41 --reasoning-parser deepseek_v41 --enable-auto-tool-choice
  --speculative-config '{"method":"dspark","num_speculative_tokens":5,"num_speculative_tokens_per_batch_size":[[1,4,5],[5,8,3],[9,32,3]],"draft_sample_method":"probabilistic"}'
  --cudagraph-capture-sizes 1 2 4 6 8 12 16 18 20 24 28 32 36 40 48 56 64 72 80 96 128
"""  # noqa: E501
PRINTED_ENVIRONMENT = """
MEGA_HOOK=/w/mega_peer_hook.py MEGA_ROWMAP=/w/rowmap-static-v1.json VLLM_EXP_PEER_SPINS=2000000000 MEGA_PEER=2
MEGA_PEER_MIN_TOKENS=1 VLLM_EXP_PEER2_SMALL=64 MEGA_FUSED_SEND=2 MEGA_COLD_TRT=0 MEGA_MHC_OVERLAP=1 MEGA_LL_GEMM=1
"""
PRINTED_SIDECAR = (
    "exec numactl --membind=0 python3 /sc/peer_server2_local.py --rowmap /w/rowmap-static-v1.json --model /model"
)


def site_of(root: Path, station: str) -> Site:
    shutil.copytree(REPOSITORY / "lanes", root / "lanes")
    shutil.copytree(REPOSITORY / "maps", root / "maps")
    (root / "station.yaml").write_text(station)
    return load_site(root)


@pytest.fixture
def complete(tmp_path: Path) -> Site:
    """The example filled in, with every map in its place."""
    site = site_of(tmp_path, uncommented_example())
    for name in ("rowmap-static-v1.json", *(f"{lane}.json" for lane in ("gracetier-255", "gracetier-275", "pg61-255"))):
        (tmp_path / "maps" / name).write_text("{}")
    return site


def container_of(lane: Lane, name: str) -> str:
    return next(service.container_name for service in lane.services if service.name == name)


def test_all_lanes_are_shipped(complete: Site) -> None:
    assert complete.lanes == SHIPPED
    assert check_all(complete) == []


@pytest.mark.parametrize("label", EVERY)
def test_a_shipped_lane_is_complete_once_station_yaml_gives_what_it_asks(complete: Site, label: str) -> None:
    lane = load_lane(complete, label, public=False)
    assert lane.missing == ()
    text = json.dumps([create_args(lane, service, name="n", labels={}).body for service in lane.services])
    assert "${" not in text


@pytest.mark.parametrize("label", EVERY)
def test_as_shipped_every_lane_is_incomplete_and_says_what_it_needs(tmp_path: Path, label: str) -> None:
    site = site_of(tmp_path, EXAMPLE)
    assert check_all(site) == []
    lane = load_lane(site, label, public=False)
    assert any(item.name.startswith("images.") for item in lane.missing)
    for item in lane.missing:
        assert re.fullmatch(r"lanes/[a-z0-9-]+\.yaml:\d+", item.where)
        family, dot, name = item.name.partition(".")
        if dot and family in ("images", "args", "paths", "gpus"):
            assert re.search(rf"^  #{name}: ", EXAMPLE, re.MULTILINE), f"the example does not show {item.name}"


@pytest.mark.parametrize("name", SHIPPED)
def test_no_digest_uuid_or_address_is_written_into_a_lane(name: str) -> None:
    text = (REPOSITORY / "lanes" / f"{name}.yaml").read_text()
    assert not re.search(r"sha256:[0-9a-f]{64}|GPU-[0-9a-f]{8}", text)
    assert set(re.findall(r"\d+\.\d+\.\d+\.\d+", text)) <= {"127.0.0.1"}


def test_v25_runs_the_command_the_article_prints(complete: Site) -> None:
    lane = load_lane(complete, "v25", public=True)
    server, sidecar = lane.server, lane.services[0]
    # Two additions: the address lanectl gives (the article has --port 30006), and this station's own flags (none here).
    assert server.command == (*shlex.split(PRINTED_SERVER), "--host", "127.0.0.1", "--port", "30006")
    assert server.entrypoint == ("numactl",)
    printed = dict(word.split("=", 1) for word in PRINTED_ENVIRONMENT.split())
    assert dict(server.environment) == printed | {"MEGA_ROWMAP": "/lane/rowmap.json"}
    assert sidecar.command == (PRINTED_SIDECAR.replace("/w/rowmap-static-v1.json", "/lane/rowmap.json"),)
    assert dict(sidecar.environment) == {"PYTHONPATH": "/b12x"}
    assert (container_of(lane, "sidecar"), container_of(lane, "server")) == ("dsv41-rtx", "dsv41")
    for service in lane.services:
        assert service.cap_add == ("IPC_LOCK", "SYS_NICE")
        assert [(limit.name, limit.soft) for limit in service.ulimits] == [("memlock", -1)]
        assert (service.ipc, service.network_mode, service.restart.name) == ("host", "host", "no")


def test_v25_has_one_map_for_both_sides_and_a_watchdog_that_wins_the_race(complete: Site) -> None:
    lane = load_lane(complete, "v25", public=True)
    assert lane.map is not None
    assert lane.map.services == ("sidecar", "server")
    assert lane.watchdog is not None
    assert (lane.watchdog.stall_s, lane.watchdog.mode, lane.watchdog.on_trip) == (2.0, "enforce", "dark")
    assert lane.watchdog.spins_at_least == 2_000_000_000
    assert lane.requires == ("map-cosine",)
    assert lane.server.facts[0].at_least == 2_400_000
    bodies = [create_args(lane, service, name="n", labels={}).body for service in lane.services]
    maps = [mount for body in bodies for mount in body["HostConfig"]["Mounts"] if mount["Target"] == lane.map.mount]
    assert [(mount["Source"], mount["ReadOnly"]) for mount in maps] == [(lane.map.file, True)] * 2


def test_v25_check_mode_changes_two_variables(complete: Site) -> None:
    base, check = (load_lane(complete, label, public=True) for label in ("v25", "v25@check"))
    changed = set(check.server.environment) - set(base.server.environment)
    assert changed == {("MEGA_PEER_CHECK", "100000"), ("MEGA_COLD_TRT", "1")}
    assert check.server.command == base.server.command


def test_gracetier_hot275_trades_room_for_speed(complete: Site) -> None:
    base, hot = (load_lane(complete, label, public=True) for label in ("gracetier", "gracetier@hot275"))
    assert [lane.server.facts[0].at_least for lane in (base, hot)] == [8_000_000, 2_600_000]
    assert base.map is not None
    assert hot.map is not None
    assert base.map.file != hot.map.file
    assert base.map.mount == hot.map.mount
    assert base.measure_profile == "general"
    assert (base.gates, base.requires, base.watchdog) == ((), (), None)


def test_every_gpu_lane_names_its_cards_through_cdi_by_uuid(complete: Site) -> None:
    for name in SHIPPED:
        for service in load_lane(complete, name, public=True).services:
            uuids = [device.name for device in service.devices]
            assert uuids == ([service.memory.uuid] if service.memory else [])
            assert all(device.qualified.startswith("nvidia.com/gpu=GPU-") for device in service.devices)


def test_the_manifest_knows_the_maps_and_invents_no_digest(tmp_path: Path) -> None:
    entries, problems = read_manifest(REPOSITORY)
    assert problems == []
    assert "rowmap-static-v1.json" in entries
    assert all(entry.sha256 is None and entry.source and entry.summary for entry in entries.values())
    written = yaml.safe_load((REPOSITORY / "maps/MANIFEST.yaml").read_text())
    assert set(written["maps"]) == set(entries)


def test_a_broken_manifest_is_a_problem_of_the_lane_that_has_a_map(complete: Site) -> None:
    manifest = Path(complete.root) / "maps/MANIFEST.yaml"
    manifest.write_text("maps: {rowmap-static-v1.json: {sha256: ABC, shaa: x}}")
    said = [(problem.where, problem.path) for problem in check_all(complete)]
    assert said == [
        ("maps/MANIFEST.yaml:1", "maps.rowmap-static-v1.json.sha256"),
        ("maps/MANIFEST.yaml:1", "maps.rowmap-static-v1.json.shaa"),
    ]
