"""A site whose machine is a world in memory (fake_world.py): engine, prober, GPUs and time, all a test's to command.

The site's files, its journal, lock and audit are real.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lanectl.actions.station import Station
from lanectl.core.lane import Restart
from lanectl.errors import LaneError
from lanectl.ports import GpuProcess, GpuReading
from tests.support.engine_cdi import GPUS, KIND, NAMES
from tests.support.fake_engine import ENGINE_ID, FakeEngine
from tests.support.fake_prober import FakeProber
from tests.support.fake_world import FakeClock, FakeContainer, Line, Program, World
from tests.support.guards import ReadyGuards
from tests.support.station import MAX_MODEL_LEN, MODEL, READY, SwapSite

PUBLIC, TRIAL = 30006, 30016
IDLE_MIB = 22
WELL = Program(model=MODEL, max_model_len=MAX_MODEL_LEN, listens_after_s=0.1)
SPEAKS = Program(lines=(Line(0.05, b"serving\n"),))


class WorldGpus:
    """The Gpus port on the world's memory."""

    def __init__(self, world: World) -> None:
        self._world = world

    def uuids(self) -> tuple[str, ...] | None:
        return tuple(GPUS.values())

    def read(self, uuid: str) -> GpuReading:
        device = f"{KIND}={uuid}"
        with self._world.changed:
            users = [one for one in self._world.containers.values() if one.running and device in one.devices]
            holders = [GpuProcess(one.pid or 0, one.name, one.program.gpu_mib) for one in users if one.program.gpu_mib]
        return GpuReading(uuid, IDLE_MIB + self._world.gpu_mib(device), tuple(holders))


@dataclass(frozen=True)
class Numbers:
    """What a measurement leaves."""

    profile: str

    def to_json(self) -> dict[str, Any]:
        return {"profile": self.profile, "cells": []}


class FakeSite(SwapSite):
    """A site on a world, which knows what a container runs by its image, or by its lane's name in its command.

    `measure`, `in_flight` and `gpus` are the Station's; replace them to have them fail.
    """

    def __init__(self, root: Path) -> None:
        self._read: tuple[object, Station] | None = None
        self.clock = FakeClock()
        self.world = World(self.clock)
        self.world.cdi_devices = tuple(NAMES.values())
        self.images: dict[str, str] = {}
        self.sharing: set[str] = set()  # lanes whose image is another lane's too
        self.measured: list[str] = []
        self.measure: Callable[..., Any] = self._measure
        self.in_flight: Callable[[str, str | None], int | None] = lambda url, key: 0
        engine = {"kind": "docker", "endpoint": "unix:///in/memory.sock", "daemon_id": ENGINE_ID}
        gpus = {role: {"uuid": uuid, "idle": f"{IDLE_MIB}MiB"} for role, uuid in GPUS.items()}
        super().__init__(root, {"engine": engine, "gpus": gpus}, FakeEngine(self.world), (PUBLIC, TRIAL))

    def station(self, *words: str, **parts: Any) -> Station:
        memory = {
            "engine": FakeEngine(self.world, ENGINE_ID),
            "prober": FakeProber(self.world),
            "gpus": WorldGpus(self.world),
            "clock": self.clock,
            "measure": self.measure,
            "in_flight": self.in_flight,
        }
        return replace(self._built(), command=("lanectl", *words), **{"jobs": ReadyGuards(), **memory, **parts})

    def _built(self) -> Station:
        """The Station as station.yaml and the names of the lanes give it: read again when they change."""
        lanes = self.root / "lanes"
        wanted = (repr(self._station), sorted(lanes.iterdir()) if lanes.is_dir() else [])
        if self._read is None or self._read[0] != wanted:
            self._read = (wanted, super().station())
        return self._read[1]

    def lane(
        self,
        name: str,
        program: Program = WELL,
        *,
        sidecar: Program | None = None,
        image_of: str | None = None,
        ready: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
        **server: Any,
    ) -> None:
        """Write a lane whose server runs `program`, after a sidecar where one is given; `ready` and `server` change
        the server's keys, `more` adds keys of the lane. `image_of`: a lane whose server has the same image."""
        services: dict[str, Any] = {}
        if image_of is not None:
            self.images[name] = self.images[image_of]
            self.sharing.add(name)
        if sidecar is not None:
            services["sidecar"] = self._service(f"{name}-sidecar", sidecar, ready={"log": "^serving", "timeout": "1m"})
            server["depends_on"] = ["sidecar"]
        services["server"] = self._service(name, program, ready={**READY, **(ready or {})}, **server)
        services["server"]["command"] = ["serve", name, "--host", "${host}", "--port", "${port}"]
        self.write_lane(name, services, more)

    def produce(self, name: str = "prod", program: Program = WELL, **lane: Any) -> FakeContainer:
        """Make a lane of this name production, from dark; return its server's container."""
        self.lane(name, program, **lane)
        ended = self.swap(name, keep=True, from_dark=True)
        assert ended.outcome == "promoted", ended
        return self.container(name)

    def by_hand(self, name: str, restart: str = "always", **body: Any) -> FakeContainer:
        """Start a lane's server as an operator does with `docker run`: no labels, a restart policy of its own."""
        command = ["serve", name, "--host", "127.0.0.1", "--port", str(self.public)]
        with self.world.changed:
            image = self.world.images[self.images[name]]
            made = self.world.add(name, {"Image": image.id, "Cmd": command, **body}, image, Restart(restart))
            self.world.start(made)
        return made

    def container(self, ref: str) -> FakeContainer:
        found = self.world.find(ref)
        assert found is not None, f"no container {ref}"
        return found

    def becomes(self, name: str, program: Program) -> None:
        """From its next start on, containers of this lane's image run another program."""
        self.world.programs[name if name in self.sharing else self.images[name]] = program

    def ask(self) -> str | None:
        listeners = self.world.listeners(self.public)
        answering = [one for one in listeners if not one.frozen and not one.program.hangs]
        return answering[0].program.model if len(listeners) == len(answering) == 1 else None

    def _service(self, name: str, program: Program, **keys: Any) -> dict[str, Any]:
        if name not in self.images:
            self.images[name] = self.world.add_image(name, program).id
        self.becomes(name, program)
        return {"container_name": name, "image": self.images[name], "network_mode": "host", "ipc": "host", **keys}

    def _measure(self, *, base_url: str, profile: str, raw_path: Path, **_: Any) -> Numbers:
        try:
            raw_path.write_text(json.dumps({"url": base_url}) + "\n")
        except OSError as error:
            raise LaneError(f"{raw_path} cannot be written: {error.strerror}") from error
        self.measured.append(base_url)
        return Numbers(profile)
