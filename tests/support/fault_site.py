"""A proving ground behind a fault proxy, on a Docker daemon of its own: one swap with one spoiled call.

Production has the policy `restart: always`, so that a daemon that restarts in the middle has something to wake. The
candidate has a GPU, so that its preflight starts a probe container.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from lanectl.engine import docker_api, docker_end
from lanectl.engine.docker import DockerEngine
from tests.support.api_faults import FAULTS, KILLS
from tests.support.engine_cdi import GPUS, NAMES
from tests.support.engine_daemon import Daemon
from tests.support.engine_images import ensure_images, python_binds
from tests.support.engine_packages import cache_folder
from tests.support.fault_proxy import Call, FaultProxy
from tests.support.proving import SCENARIOS, SIGKILLED, Proving, Survived
from tests.support.station import SOON_S, RealSite

# The client's own deadlines, short enough for a test that lets each of them pass.
DEADLINES = {
    (docker_api, "LOOK_S"): 1.0,
    (docker_api, "ACT_S"): 2.0,
    (docker_end, "KILL_LIMIT_S"): 3.0,
    (docker_end, "REMOVE_LIMIT_S"): 2.0,
    (docker_end, "BACKSTOP_S"): 1,
    (docker_end, "ANSWER_S"): 1.0,
}
LANES: dict[str, dict[str, Any]] = {"prod": {"restart": "always"}, "cand": {"devices": [NAMES["gb300"]]}}
TRIES = 3  # at a call that a run did not make: how often a container is looked at varies a little


@dataclass(frozen=True)
class Case:
    """One swap with one spoiled call."""

    scenario: str
    fault: str
    call: Call

    def __str__(self) -> str:
        return f"{self.scenario}: {self.fault} at {self.call}"


class NotReached(AssertionError):
    """The swap did not make this call."""


def shorten_deadlines(patch: pytest.MonkeyPatch) -> None:
    """Give this process's client its short deadlines."""
    for (module, name), value in DEADLINES.items():
        patch.setattr(module, name, value)


class FaultSite:
    """One daemon, its proxy, and the site behind it."""

    def __init__(self, folder: Path, daemon: Daemon) -> None:
        folder.mkdir(exist_ok=True)
        self._daemon = daemon
        self._images = ensure_images(daemon.url, cache_folder() / "bin" / "busybox")
        self._proxy = FaultProxy(folder, daemon)
        self._proving = Proving(folder, self._make, LANES, self._proxy.release)
        self._patch = pytest.MonkeyPatch()
        shorten_deadlines(self._patch)

    @cached_property
    def cases(self) -> list[Case]:
        """Every case: each fault at each call that two undisturbed runs of a swap both make."""
        return [
            Case(scenario, fault, call) for scenario in SCENARIOS for call in self._calls(scenario) for fault in FAULTS
        ]

    def prove(self, case: Case) -> Survived:
        """Run the swap with its call spoiled. Raise AssertionError unless that was survived, `NotReached` if the call
        never came."""
        for _ in range(TRIES):
            site = self._proving.ready()
            self._proxy.begin(case.call, FAULTS[case.fault])
            survived = self._run(case, site)
            if self._proxy.struck:
                return survived
        raise NotReached(f"no such call in {TRIES} runs of {case}; calls: {[str(call) for call in self._proxy.calls]}")

    def close(self) -> None:
        self._patch.undo()
        self._proving.close()
        self._proxy.close()

    def _calls(self, scenario: str) -> list[Call]:
        runs = []
        for _ in range(2):
            self._proving.ready()
            self._proxy.begin()
            survived = self._proving.in_this_process(SCENARIOS[scenario])
            assert not survived.recovered, survived
            runs.append(list(self._proxy.calls))
        return [call for call in runs[0] if call in runs[1]]

    def _run(self, case: Case, site: RealSite) -> Survived:
        scenario = SCENARIOS[case.scenario]
        if case.fault not in KILLS:
            return self._proving.in_this_process(scenario)

        def begin(words: list[str]) -> int:
            process = site.begin(*words).process
            self._proxy.watch(process.pid)
            code = process.wait(SOON_S)
            assert (code == SIGKILLED) is self._proxy.struck, code
            return code

        return self._proving.as_a_process(scenario, begin)

    def _make(self, root: Path) -> RealSite:
        self._proxy.begin()
        station = {
            "engine": {"kind": "docker", "endpoint": self._proxy.url, "daemon_id": self._daemon.id()},
            "args": {"binds": python_binds()},
            "gpus": dict(GPUS),
        }
        return RealSite(root, station, self._images["pyhost"], DockerEngine(self._daemon.url, None))
