"""What lanectl creates, what `render` prints and what `render --compose` writes make the same container."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lanectl.core.lane import (
    Device,
    Lane,
    MapRef,
    Mount,
    PortMap,
    Ready,
    Restart,
    Service,
    Tmpfs,
    Ulimit,
)
from lanectl.engine.create import compose, create_args, docker_run
from lanectl.engine.docker import DockerEngine as LaneEngine
from lanectl.site.load import load_lane, load_site
from tests.support.docker_engine import DockerEngine
from tests.support.engine_api import call
from tests.support.site_dir import REPOSITORY, uncommented_example

COMMAND_LIMIT_S = 60.0
SHIPPED = ("gracetier", "october", "pg61", "v23", "v25", "vllm-cpu", "v25@check", "gracetier@hot275")


@pytest.fixture
def command(docker_engine: DockerEngine) -> list[str]:
    if docker_engine.docker is None:
        pytest.skip("no docker command with the compose plugin here")
    return docker_engine.docker


def run(words: Sequence[str], folder: Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lane_of(image: str, prefix: str, folder: Path, devices: Sequence[str]) -> Lane:
    """A lane with every key that can differ, on an image of the tests."""
    (folder / "map.json").write_text("{}")
    (folder / "a,b").mkdir()
    server = Service(
        name="server",
        container_name=f"{prefix}server",
        image=image,
        entrypoint=("sh", "-c"),
        command=('echo "$0" $HOME', "a b", "c$d", "${x}"),
        environment=(("PRICE", "$5"), ("EMPTY", ""), ("SPACED", "a b")),
        mounts=(Mount(str(folder), "/site"), Mount(f"{folder}/a,b", "/ab", True)),
        devices=tuple(Device(name) for name in devices),
        ipc="shareable",
        network_mode="bridge",
        ports=(PortMap(8000, 18431), PortMap(53, 18432, "127.0.0.1", "udp")),
        ulimits=(Ulimit("nofile", 1024, 2048), Ulimit("core", 0, 0)),
        cap_add=("SYS_NICE",),
        security_opt=("no-new-privileges",),
        shm_size=32 * 2**20,
        tmpfs=(Tmpfs("/scratch", "size=1m"),),
        user="0:0",
        working_dir="/site",
        restart=Restart("on-failure", 2),
        stop_grace_s=7.0,
        stop_signal="SIGINT",
        init=True,
        ready=Ready(models=True),
    )
    map_ref = MapRef(f"{folder}/map.json", "/lane/map.json", ("server",))
    return Lane("render", None, "", "m", None, "127.0.0.1", 1, (server,), map=map_ref)


def essence(url: str, ref: str) -> dict[str, Any]:
    """What makes a container what it is, from the engine's own words; what only differs in spelling is made equal."""
    found = call(url, "GET", f"/containers/{ref}/json")
    config, host = found["Config"], found["HostConfig"]
    keys = ("User", "WorkingDir", "StopSignal", "StopTimeout", "ExposedPorts")
    host_keys = (
        *("RestartPolicy", "LogConfig", "IpcMode", "NetworkMode", "ShmSize", "Tmpfs", "Init", "SecurityOpt"),
        *("PortBindings", "AutoRemove", "Privileged"),
    )
    mounts = [(mount["Source"], mount["Destination"], mount["RW"], mount["Type"]) for mount in found["Mounts"]]
    return {
        **{key: config.get(key) for key in keys},
        **{key: host.get(key) for key in host_keys},
        "Image": found["Image"],
        "Words": [*config["Entrypoint"], *config["Cmd"]],  # docker run has room for one word of entrypoint
        "CapAdd": sorted(name.removeprefix("CAP_") for name in host["CapAdd"]),
        "Env": sorted(config["Env"]),
        "Mounts": sorted(mounts),
        "Ulimits": sorted((limit["Name"], limit["Soft"], limit["Hard"]) for limit in host["Ulimits"]),
        "Devices": [name for request in host.get("DeviceRequests") or () for name in request["DeviceIDs"]],
    }


def test_the_api_call_docker_run_and_compose_make_the_same_container(
    docker_engine: DockerEngine,
    cdi_names: dict[str, str],
    command: list[str],
    container_prefix: str,
    tmp_path: Path,
) -> None:
    image = docker_engine.images["busybox"]
    lane = lane_of(image, container_prefix, tmp_path, [cdi_names["gb300"], cdi_names["rtx"]])
    (service,) = lane.services
    args = create_args(lane, service, name=f"{container_prefix}api", labels={}, restart=service.restart)
    LaneEngine(docker_engine.url, docker_engine.daemon_id).create(args)
    wanted = essence(docker_engine.url, args.name)
    assert wanted["Devices"] == [cdi_names["gb300"], cdi_names["rtx"]]
    assert wanted["Words"] == ["sh", "-c", 'echo "$0" $HOME', "a b", "c$d", "${x}"]
    assert ("/lane/map.json", False) in [(to, writable) for _, to, writable, _ in wanted["Mounts"]]

    words = docker_run(replace(args, name=f"{container_prefix}run"))
    assert words[:3] == ["docker", "run", "--detach"]
    run([*command, "create", *words[3:]], tmp_path)
    assert essence(docker_engine.url, f"{container_prefix}run") == wanted

    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(compose(lane)))
    run([*command, "compose", "-f", "compose.yaml", "-p", f"{container_prefix}p", "create"], tmp_path)
    assert essence(docker_engine.url, service.container_name) == wanted


@pytest.mark.parametrize("label", SHIPPED)
def test_compose_accepts_every_shipped_lane(command: list[str], tmp_path: Path, label: str) -> None:
    for folder in ("lanes", "maps"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    (tmp_path / "station.yaml").write_text(uncommented_example())
    lane = load_lane(load_site(tmp_path), label, public=True)
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(compose(lane), sort_keys=False))
    read = json.loads(run([*command, "compose", "-f", "compose.yaml", "config", "--format", "json"], tmp_path))
    assert set(read["services"]) == {service.name for service in lane.services}
    for service in lane.services:
        taken = read["services"][service.name]
        # `config` prints what it would need to read again, so a dollar sign is doubled in it.
        assert [word.replace("$$", "$") for word in taken["command"] or ()] == list(service.command or ())
        assert taken["image"] == service.image
        assert [device["source"] for device in taken.get("devices", ())] == [item.qualified for item in service.devices]
