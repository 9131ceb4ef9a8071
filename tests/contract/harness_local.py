"""The local engine in the contract suite: supervised shells in a directory of the test's own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from lanectl.core.container import CreateArgs
from lanectl.core.lane import Restart
from lanectl.engine.environment import reference
from lanectl.engine.local import LocalEngine
from tests.contract.harness import Script

DEVICE = "nvidia.com/gpu=GPU-11111111-0000-4000-8000-000000000000"


class LocalHarness:
    name = "local"
    restarts = False
    known_device = DEVICE

    def __init__(self, folder: Path) -> None:
        environment = folder / "environment"
        environment.mkdir()
        (environment / "README").write_text("what the containers of this test are made from\n")
        cdi = folder / "cdi"
        cdi.mkdir()
        kind, _, device = DEVICE.partition("=")
        edits = {"env": [f"TEST_VISIBLE_DEVICES={device}"]}
        spec = {"cdiVersion": "0.6.0", "kind": kind, "devices": [{"name": device, "containerEdits": edits}]}
        (cdi / "test.json").write_text(json.dumps(spec))
        self.engine = LocalEngine(folder / "state", [str(cdi)])
        image = self.engine.image(reference(environment))
        assert image is not None
        self.image = image.id

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
        body = {
            "Image": image or self.image,
            "Entrypoint": ["/bin/sh", "-c"],
            "Cmd": [script.as_shell()],
            "Labels": dict(labels or {}),
            "HostConfig": {
                "NetworkMode": "host",
                "IpcMode": "host",
                "RestartPolicy": {"Name": policy.name, "MaximumRetryCount": policy.max_retries},
                "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": list(devices)}] if devices else [],
            },
        }
        return CreateArgs(self.unique(name), body)

    def unique(self, name: str) -> str:
        return name + ".local"  # the engine is this test's own

    def pause(self, ref: str) -> None:
        container = self.engine.inspect(ref)
        assert container is not None
        assert container.pid is not None
        os.kill(container.pid, signal.SIGSTOP)


def make(request: pytest.FixtureRequest) -> LocalHarness:
    harness = LocalHarness(request.getfixturevalue("tmp_path"))

    def clear() -> None:
        for container in harness.engine.containers():
            harness.engine.remove(container.id)

    request.addfinalizer(clear)
    return harness
