"""The Docker engine in the contract suite: busybox containers on the real engine of the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lanectl.core.container import CreateArgs
from lanectl.core.lane import Restart
from lanectl.engine.docker import DockerEngine
from tests.contract.harness import Script
from tests.support.docker_engine import DockerEngine as RealEngine
from tests.support.engine_api import call
from tests.support.engine_images import LABEL

MARKS = (pytest.mark.engine,)


class DockerHarness:
    name = "docker"
    restarts = True

    def __init__(self, real: RealEngine, prefix: str) -> None:
        self.engine = DockerEngine(real.url, real.daemon_id)
        self.image = real.images["busybox"]
        self.known_device = real.cdi.get("gb300")
        self._url = real.url
        self._prefix = prefix

    def args(
        self,
        name: str,
        script: Script,
        *,
        labels: Mapping[str, str] | None = None,
        restart: Restart | None = None,
        image: str | None = None,
        devices: tuple[str, ...] = (),
    ) -> CreateArgs:
        policy = restart or Restart()
        host: dict[str, Any] = {
            "NetworkMode": "host",
            "IpcMode": "host",
            "RestartPolicy": {"Name": policy.name, "MaximumRetryCount": policy.max_retries},
        }
        if devices:
            host["DeviceRequests"] = [{"Driver": "cdi", "DeviceIDs": list(devices)}]
        body = {
            "Image": image or self.image,
            "Entrypoint": ["/bin/sh", "-c"],
            "Cmd": [script.as_shell()],
            "Labels": {LABEL: "contract", **(labels or {})},
            "HostConfig": host,
        }
        return CreateArgs(self.unique(name), body)

    def unique(self, name: str) -> str:
        return self._prefix + name

    def pause(self, ref: str) -> None:
        call(self._url, "POST", f"/containers/{ref}/pause")


def make(request: pytest.FixtureRequest) -> DockerHarness:
    return DockerHarness(request.getfixturevalue("docker_engine"), request.getfixturevalue("container_prefix"))
