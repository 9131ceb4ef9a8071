"""The local engine in the contract suite: supervised shells in a directory of the test's own."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

import pytest

from lanectl.core.container import CreateArgs
from lanectl.core.lane import Restart
from tests.contract.harness import Script
from tests.support.local_services import GPU, LocalServices


class LocalHarness:
    name = "local"
    restarts = False
    known_device = GPU

    def __init__(self, services: LocalServices) -> None:
        self._services = services
        self.engine = services.engine
        image = services.engine.image(services.image)
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
        host = {
            "RestartPolicy": {"Name": policy.name, "MaximumRetryCount": policy.max_retries},
            "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": list(devices)}] if devices else [],
        }
        shell = ("/bin/sh", "-c", script.as_shell())
        asked = {"Image": image or self.image, "Labels": dict(labels or {})}
        return self._services.args(self.unique(name), *shell, host=host, **asked)

    def unique(self, name: str) -> str:
        return name + ".local"  # the engine is this test's own

    def pause(self, ref: str) -> None:
        pid = self._services.see(ref).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)


def make(request: pytest.FixtureRequest) -> LocalHarness:
    services = LocalServices(request.getfixturevalue("tmp_path"))
    request.addfinalizer(services.clear)
    return LocalHarness(services)
