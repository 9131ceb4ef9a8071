"""GPUs by CDI on a real engine: the device is really there inside, a name that is not known never costs production,
and two lanes never share a card."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.core.container import Container, CreateArgs
from lanectl.core.journal import Kind
from lanectl.errors import ExitCode
from tests.support.aftermath import is_back, untouched
from tests.support.docker_engine import DockerEngine
from tests.support.engine_api import call
from tests.support.engine_cdi import GPUS, KIND, NODE_NUMBERS, NODES, spec
from tests.support.engine_daemon import Daemon
from tests.support.engine_images import LABEL, ensure_images
from tests.support.engine_packages import cache_folder
from tests.support.poll import until
from tests.support.private_engine import main_daemon
from tests.support.station import SERVER, SMALLEST, SOON_S, RealSite, docker_site

UNKNOWN = f"{KIND}=GPU-cccccccc-0000-4000-8000-000000000000"
# The candidate's own process says what it sees, and then serves.
LOOKS = """
import os, runpy, stat
for node in ("/dev/nvidia0", "/dev/nvidia1"):
    try:
        seen = os.stat(node)
        print("sees", node, stat.S_ISCHR(seen.st_mode), os.major(seen.st_rdev), os.minor(seen.st_rdev), flush=True)
        with open(node, "wb") as device:
            device.write(b"x")
    except FileNotFoundError:
        print("no", node, flush=True)
print("visible", os.environ["NVIDIA_VISIBLE_DEVICES"], flush=True)
runpy.run_module("lanectl.reference.server", run_name="__main__")
"""
SAYS = ["-c", LOOKS, *SERVER[2:], *SMALLEST]


@pytest.fixture(scope="module")
def gpus(docker_engine: DockerEngine, cdi_names: dict[str, str]) -> Iterator[dict[str, str]]:
    """UUIDs by role of GPUs that no other test has a container on, where the engine is ours to give it some."""
    if not docker_engine.private:
        yield GPUS
        return
    own = {role: f"GPU-{uuid.uuid4()}" for role in GPUS}
    file = main_daemon().cdi_dirs[0] / f"lanectl-test-{own['gb300']}.json"
    file.write_text(json.dumps(spec(own)))
    try:
        until(lambda: set(own.values()) <= _known(docker_engine), SOON_S, "the engine knows the new devices")
        yield own
    finally:
        file.unlink()


def _known(engine: DockerEngine) -> set[str]:
    devices = call(engine.url, "GET", "/info").get("DiscoveredDevices") or ()
    return {str(device["ID"]).partition("=")[2] for device in devices}


@pytest.fixture(scope="module")
def site(
    docker_engine: DockerEngine, gpus: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealSite]:
    """A site whose production serves through all tests of this module, on the RTX."""
    root = tmp_path_factory.mktemp("devices")
    with docker_site(root / "site", docker_engine, f"lt-{root.name}-{time.monotonic_ns():x}-") as site:
        site.say(gpus=gpus)
        site.produce(devices=[f"{KIND}=${{gpus.rtx}}"])
        yield site


@pytest.fixture
def production(site: RealSite) -> Container:
    return site.seen(f"{site.prefix}prod")


@pytest.mark.parametrize(("role", "other"), [("gb300", "rtx"), ("rtx", "gb300")])
def test_T31_the_candidates_process_sees_its_own_gpu_by_uuid_and_no_other(
    site: RealSite, production: Container, gpus: dict[str, str], role: str, other: str
) -> None:
    major, minor = NODE_NUMBERS
    wanted = {
        "node": f"^sees {NODES[role]} True {major} {minor}$",
        "other": f"^no {NODES[other]}$",
        "uuid": f"^visible {gpus[role]}$",
    }
    site.lane(
        "cand",
        command=SAYS,
        devices=[f"{KIND}=${{gpus.{role}}}"],
        facts={name: {"log": line, "required": True} for name, line in wanted.items()},
    )
    ended = site.swap("cand")
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "proven"), ended.words
    started = site.record(Kind.DONE, "start:server")
    assert started is not None
    assert started.data["devices"] == [f"{KIND}={gpus[role]}"]
    is_back(site, production)
    assert site.seen(production.id).devices == (f"{KIND}={gpus['rtx']}",)


def test_both_gpus_in_one_lane(site: RealSite, production: Container) -> None:
    facts = {f"gpu_{role}": {"log": f"^sees {NODES[role]} True", "required": True} for role in GPUS}
    site.lane("cand", command=SAYS, devices=[f"{KIND}=${{gpus.{role}}}" for role in GPUS], facts=facts)
    ended = site.swap("cand")
    assert ended.outcome == "proven", ended.words
    is_back(site, production)


def test_T28_an_unknown_cdi_name_is_refused_before_production_is_touched(
    site: RealSite, production: Container, gpus: dict[str, str]
) -> None:
    site.lane("cand", devices=[UNKNOWN])
    done = site.lanectl("swap", "cand", "--yes")
    assert done.code == ExitCode.REFUSED, done
    assert "refused, nothing was touched" in done.err
    assert "services.server.devices" in done.err
    assert f"unresolvable CDI devices {UNKNOWN}" in done.err
    assert all(f"{KIND}={one}" in done.err for one in gpus.values()), done.err
    assert "nvidia-ctk cdi generate" in done.err
    untouched(site, production)


@pytest.mark.parametrize("device", [f"{KIND}=0", f"{KIND}=all", "/dev/nvidia0", "all"])
def test_T32_an_index_or_all_is_no_device_name(
    site: RealSite, production: Container, gpus: dict[str, str], device: str
) -> None:
    """`--gpus all` fails on some engines, an index means another card tomorrow: UUIDs only, and they are listed."""
    site.lane("cand", devices=[device])
    before = len(site.journals())
    ended = site.swap("cand")
    assert ended.exit_code is ExitCode.USAGE
    assert "services.server.devices[0]" in ended.words
    assert all(one in ended.words for one in gpus.values()), ended.words
    assert len(site.journals()) == before
    assert site.seen(production.id) == production


def test_two_lanes_on_one_gpu_are_detected_whoever_started_the_other(
    site: RealSite, production: Container, docker_engine: DockerEngine, gpus: dict[str, str]
) -> None:
    name = f"{site.prefix}jupyter"
    device = f"{KIND}={gpus['gb300']}"
    site.engine.create(
        CreateArgs(
            name,
            {
                "Image": docker_engine.images["busybox"],
                "Cmd": ["sleep", "1000"],
                "Labels": {LABEL: "stranger"},
                "StopSignal": "SIGKILL",
                "HostConfig": {"NetworkMode": "none", "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [device]}]},
            },
        )
    )
    site.engine.start(name)
    site.lane("cand", devices=[device])
    ended = site.swap("cand")
    assert ended.exit_code is ExitCode.REFUSED
    assert name in ended.words
    assert device in ended.words
    untouched(site, production, beside=[name])
    site.engine.remove(name)
    assert site.swap("cand").outcome == "proven"


def test_T42_a_missing_image_is_refused_and_production_untouched(site: RealSite, production: Container) -> None:
    missing = "sha256:" + "0" * 64
    site.lane("cand", image=missing)
    done = site.lanectl("swap", "cand", "--yes")
    assert done.code == ExitCode.REFUSED, done
    assert f"{missing} is not on this machine" in done.err
    untouched(site, production)


@pytest.fixture
def other_daemon(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[Daemon]:
    if not docker_engine.private:
        pytest.skip("a second daemon is started beside the tests' own engine only")
    daemon = Daemon(tmp_path / "second", "swap-second").start()
    try:
        ensure_images(daemon.url, cache_folder() / "bin" / "busybox")
        yield daemon
    finally:
        daemon.stop()


def test_T39_an_endpoint_that_leads_to_another_daemon_than_the_pinned_one_is_refused(
    site: RealSite, production: Container, docker_engine: DockerEngine, other_daemon: Daemon
) -> None:
    """A Docker context or variable that points elsewhere changes nothing; an endpoint in station.yaml is checked."""
    site.lane("cand")
    site.say(engine={"kind": "docker", "endpoint": other_daemon.url, "daemon_id": docker_engine.daemon_id})
    done = site.lanectl("swap", "cand", "--yes")
    site.say(engine={"kind": "docker", "endpoint": docker_engine.url, "daemon_id": docker_engine.daemon_id})
    assert done.code == ExitCode.REFUSED, done
    assert docker_engine.daemon_id in done.err
    assert other_daemon.id() in done.err
    assert site.until_closed() == "refused"
    assert site.seen(production.id) == production
