"""The in-memory engine in the contract suite, on real time: the suite waits for it as for a real one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from lanectl.clock import SystemClock
from lanectl.core.container import CreateArgs
from lanectl.core.lane import Restart
from tests.contract.harness import Script
from tests.support.fake_engine import FakeEngine
from tests.support.fake_world import Line, Program, World

DEVICE = "nvidia.com/gpu=GPU-aaaaaaaa-0000-4000-8000-000000000300"


class FakeHarness:
    name = "fake"
    restarts = True

    def __init__(self) -> None:
        self.world = World(SystemClock())
        self.world.cdi_devices = (DEVICE,)
        self.engine = FakeEngine(self.world)
        self.image = self.world.add_image("contract").id
        self.known_device = DEVICE

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
        self.world.programs[self.unique(name)] = _program(script)
        host = {
            "NetworkMode": "host",
            "RestartPolicy": {"Name": policy.name, "MaximumRetryCount": policy.max_retries},
            "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": list(devices)}],
        }
        return CreateArgs(
            self.unique(name), {"Image": image or self.image, "Labels": dict(labels or {}), "HostConfig": host}
        )

    def unique(self, name: str) -> str:
        return f"fake-{name}"

    def pause(self, ref: str) -> None:
        container = self.world.find(ref)
        assert container is not None
        self.world.freeze(container)


def make(request: pytest.FixtureRequest) -> FakeHarness:
    return FakeHarness()


def _program(script: Script) -> Program:
    ends = list(itertools.accumulate((write.then_wait_s for write in script.writes), initial=0.0))
    return Program(
        lines=tuple(Line(at, write.data, write.stream) for at, write in zip(ends, script.writes, strict=False)),
        exits_after_s=None if script.exits is None else ends[-1],
        exit_code=script.exits or 0,
        term_code=script.term_code,
        children=script.children,
    )
