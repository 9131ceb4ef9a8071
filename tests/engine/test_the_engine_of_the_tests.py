"""The engine that the other tests stand on: images, CDI devices, this machine's Python in a container, two daemons."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import psutil
import pytest
from docker.errors import APIError
from docker.models.containers import Container
from docker.types import DeviceRequest

from tests.support.docker_engine import DockerEngine
from tests.support.engine_api import ping
from tests.support.engine_cdi import GPUS, KIND, NODES
from tests.support.engine_daemon import Daemon
from tests.support.engine_images import LABEL, python_binds

RUN_LIMIT_S = 30.0


@pytest.fixture
def client(docker_engine: DockerEngine) -> Iterator[docker.DockerClient]:
    connected = docker.DockerClient(base_url=docker_engine.url)
    yield connected
    connected.close()


def output(container: Container) -> str:
    """Start a container, wait for its end, and return what it printed; its exit code must be 0."""
    container.start()
    code = container.wait(timeout=RUN_LIMIT_S)["StatusCode"]
    said = container.logs().decode()
    assert code == 0, said
    return said


def test_a_cdi_device_brings_its_environment_and_a_real_device_node(
    docker_engine: DockerEngine, client: docker.DockerClient, cdi_names: dict[str, str], container_prefix: str
) -> None:
    container = client.containers.create(
        docker_engine.images["busybox"],
        [
            "sh",
            "-c",
            "echo $NVIDIA_VISIBLE_DEVICES; ls /dev/nvidia*; echo gone > /dev/nvidia1; stat -c %t,%T /dev/nvidia1",
        ],
        name=f"{container_prefix}cdi",
        labels={LABEL: ""},
        device_requests=[DeviceRequest(driver="cdi", device_ids=[cdi_names["rtx"]])],
    )
    assert output(container).split() == [GPUS["rtx"], NODES["rtx"], "1,3"]


def test_an_unknown_cdi_name_fails_at_start(
    docker_engine: DockerEngine, client: docker.DockerClient, cdi_names: dict[str, str], container_prefix: str
) -> None:
    container = client.containers.create(
        docker_engine.images["busybox"],
        ["true"],
        name=f"{container_prefix}unknown",
        labels={LABEL: ""},
        device_requests=[DeviceRequest(driver="cdi", device_ids=[f"{KIND}=GPU-unknown"])],
    )
    with pytest.raises(APIError, match="unresolvable CDI devices"):
        container.start()


def test_this_interpreter_with_its_packages_runs_in_a_container_without_a_base_image(
    docker_engine: DockerEngine, client: docker.DockerClient, container_prefix: str
) -> None:
    container = client.containers.create(
        docker_engine.images["pyhost"],
        [sys.executable, "-c", "import sys, yaml, json; print(json.dumps([sys.prefix, yaml.__file__]))"],
        name=f"{container_prefix}python",
        labels={LABEL: ""},
        network_mode="host",
        volumes=python_binds(),
    )
    import yaml

    assert json.loads(output(container)) == [sys.prefix, yaml.__file__]


def test_compose_runs_on_the_same_engine(docker_engine: DockerEngine, tmp_path: Path) -> None:
    if docker_engine.docker is None:
        pytest.skip("no docker command with the compose plugin here")
    file = tmp_path / "compose.yaml"
    file.write_text(f"services: {{one: {{image: '{docker_engine.images['busybox']}', network_mode: host}}}}\n")
    said = subprocess.run(
        [*docker_engine.docker, "compose", "-f", file, "config", "--format", "json"],
        text=True,
        capture_output=True,
        check=True,
    )
    assert json.loads(said.stdout)["services"]["one"]["image"] == docker_engine.images["busybox"]


def command_lines() -> list[str]:
    commands = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
    return [" ".join(words) for words in commands if words]


@pytest.fixture
def second_daemon(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[Daemon]:
    if not docker_engine.private:
        pytest.skip(f"a second daemon needs a private first one; the tests use {docker_engine.source}")
    daemon = Daemon(tmp_path / "second", "second")
    yield daemon.start()
    daemon.stop()


def test_a_second_daemon_runs_beside_the_first_keeps_its_id_and_leaves_nothing_behind(
    docker_engine: DockerEngine, second_daemon: Daemon
) -> None:
    first_id = second_daemon.id()
    assert first_id != docker_engine.daemon_id
    busybox = docker_engine.images["busybox"]
    with_image = docker.DockerClient(base_url=second_daemon.url)
    second_daemon_images = {image.id for image in with_image.images.list()}
    assert busybox not in second_daemon_images, "the two daemons share images"
    with_image.close()

    second_daemon.restart()
    assert second_daemon.id() == first_id

    second_daemon.kill()
    assert not ping(second_daemon.url)
    second_daemon.start()
    assert second_daemon.id() == first_id

    second_daemon.stop()
    assert not [words for words in command_lines() if str(second_daemon.run) in words]
    assert ping(docker_engine.url)
