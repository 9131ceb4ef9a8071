"""A local engine of a test's own, and services for it: any command, real processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lanectl.core.container import Container, CreateArgs
from lanectl.engine import shim
from lanectl.engine.environment import reference
from lanectl.engine.local import LocalEngine
from lanectl.ports import Jobs
from lanectl.store.process import ProcessId, boot_id
from tests.support.poll import until

SOON_S = 20.0  # for a loaded two-core machine; nothing waits this long unless it has failed
GPU = "nvidia.com/gpu=GPU-22222222-0000-4000-8000-000000000000"


class LocalServices:
    """`engine` in FOLDER/state, made from an environment in FOLDER/environment, with one CDI device, `GPU`."""

    def __init__(self, folder: Path, jobs: Jobs | None = None) -> None:
        self.folder = folder
        self.root = folder / "state"
        self.environment = folder / "environment"
        self.environment.mkdir(exist_ok=True)
        (self.environment / "README").write_text("what these services are made from\n")
        self.cdi = folder / "cdi"
        self.cdi.mkdir(exist_ok=True)
        kind, _, name = GPU.partition("=")
        device = {"name": name, "containerEdits": {"env": [f"VISIBLE={name}"]}}
        (self.cdi / "gpu.json").write_text(json.dumps({"kind": kind, "devices": [device]}))
        self.engine = LocalEngine(self.root, [str(self.cdi)], jobs)
        self.image = reference(self.environment)

    def args(self, name: str, *command: str, host: Mapping[str, Any] | None = None, **config: Any) -> CreateArgs:
        """Given a command, return the arguments that make a container of it; `config` and `host` add keys."""
        always = {"NetworkMode": "host", "IpcMode": "host"}
        body = {"Image": self.image, "Entrypoint": list(command), "HostConfig": {**always, **(host or {})}}
        return CreateArgs(name, {**body, **config})

    def run(self, name: str, *command: str, host: Mapping[str, Any] | None = None, **config: Any) -> str:
        """Make and start a container; return its id."""
        container_id = self.engine.create(self.args(name, *command, host=host, **config))
        self.engine.start(container_id)
        return container_id

    def python(self, name: str, code: str, *words: str, host: Mapping[str, Any] | None = None, **config: Any) -> str:
        """Make and start a container that runs Python code; return its id."""
        return self.run(name, sys.executable, "-I", "-S", "-u", "-c", code, *words, host=host, **config)

    def see(self, ref: str) -> Container:
        container = self.engine.inspect(ref)
        assert container is not None
        return container

    def ended(self, ref: str) -> Container:
        """Wait until the container does not run any more; return it."""
        until(lambda: not self.see(ref).running, SOON_S, f"{ref} ended")
        return self.see(ref)

    def lines(self, ref: str, count: int) -> list[str]:
        """Wait for the first lines of this run's log; return them."""
        log = self.engine.logs(ref)
        try:
            return [next(log) for _ in range(count)]
        finally:
            log.close()

    def directory(self, ref: str) -> Path:
        return self.root / "containers" / self.see(ref).id

    def record(self, ref: str) -> dict[str, Any]:
        """Return the run record that the container's supervisor wrote last."""
        record = shim.read_record(str(self.directory(ref)))
        assert record is not None
        return record

    def supervisor(self, ref: str) -> ProcessId:
        pid, start_time = self.record(ref)["shim"]
        return ProcessId(pid, start_time, boot_id())

    def clear(self) -> None:
        for container in self.engine.containers():
            self.engine.remove(container.id)


@contextmanager
def local_services(folder: Path, jobs: Jobs | None = None) -> Iterator[LocalServices]:
    """Give services in this folder; whatever still runs is removed afterwards."""
    services = LocalServices(folder, jobs)
    try:
        yield services
    finally:
        services.clear()
