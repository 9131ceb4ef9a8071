"""A site in a test's own folder and the Station on it: its lanes run the reference engine, on any engine.

`local_site` and `docker_site` make one on a real engine; fake_station.py has the one in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from lanectl.actions.interrupts import Interrupts
from lanectl.actions.recover import Recovered, recover
from lanectl.actions.station import Station
from lanectl.actions.swap import SwapReport, SwapRequest, swap
from lanectl.core.container import Container
from lanectl.core.journal import Kind, Record
from lanectl.engine.docker import DockerEngine
from lanectl.engine.environment import reference
from lanectl.engine.local import LocalEngine
from lanectl.errors import ExitCode, LaneError
from lanectl.ports import ContainerEngine
from lanectl.settings import Settings
from lanectl.store.journal import records
from lanectl.wiring import build_station
from tests.support.docker_engine import DockerEngine as TestEngine
from tests.support.engine_cdi import GPUS
from tests.support.engine_images import REPOSITORY_ROOT, python_binds
from tests.support.free_ports import free_ports
from tests.support.guards import ReadyGuards
from tests.support.poll import until

MODEL = "demo"
MAX_MODEL_LEN = 2048
# The reference engine at its smallest is ready 0.3 s after its start; a loaded two-core machine takes several times
# that. Nothing waits this long unless it has failed.
SOON_S = 30.0
SERVER = ("-m", "lanectl.reference.server", "--host", "${host}", "--port", "${port}", "--served-model-name", MODEL)
SMALLEST = ("--shape", "tiny", "--max-model-len", str(MAX_MODEL_LEN), "--kv-cache-memory-bytes", str(4 * 2**20))
READY: Mapping[str, Any] = {
    "health": "/health",
    "models": True,
    "completion": {"within": "10s"},
    "timeout": "30s",
    "fatal": ["^Traceback", "^RuntimeError:"],
}


def dumped(data: Any, **how: Any) -> str:
    """Return it as YAML. By libyaml where there is one: a test writes thousands of these files."""
    return str(yaml.dump(data, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), **how))


class Told:
    """The Progress port: remembers what it was told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.notes: list[str] = []

    def phase(self, phase: str, text: str) -> None:
        self.phases.append(str(phase))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def ticker(self, text: str) -> None: ...


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, its report, or the error that stands for it."""

    exit_code: ExitCode
    told: Told
    report: SwapReport | None = None
    error: LaneError | None = None

    @property
    def outcome(self) -> str:
        return self.report.outcome if self.report is not None else ""

    @property
    def words(self) -> str:
        """What a person reads of the failure: the error's message and hint, or the report's failure."""
        if self.error is not None:
            return f"{self.error.message}\n{self.error.hint or ''}"
        failure = self.report.failure if self.report is not None else None
        return f"{failure.step}: {failure.reason}: {failure.message}" if failure is not None else ""


class SwapSite:
    """A site in `root`: station.yaml and lanes as a test writes them, and what it asks of the site from outside."""

    def __init__(
        self, root: Path, station: Mapping[str, Any], engine: ContainerEngine, ports: Sequence[int], prefix: str = ""
    ) -> None:
        self.root = root
        self.engine = engine  # a look from outside: not the connection that lanectl uses
        self.public, self.trial = ports
        self.prefix = prefix
        self._station = {
            "station": "test",
            "ports": {"public": self.public, "trial": self.trial},
            "reboot_recovery": "accepted",
            **station,
        }
        self.say()

    def say(self, **keys: Any) -> None:
        """Write station.yaml with these top-level keys changed."""
        self._station |= keys
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "station.yaml").write_text(dumped(self._station, sort_keys=False))

    def write_lane(self, name: str, services: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> None:
        """Write a lane; `more` are keys beside its services."""
        lane = {"lane": name, "served_model": MODEL, "max_model_len": MAX_MODEL_LEN, **(more or {})}
        (self.root / "lanes").mkdir(exist_ok=True)
        (self.root / "lanes" / f"{name}.yaml").write_text(dumped({**lane, "services": dict(services)}))

    def station(self, *words: str, **parts: Any) -> Station:
        """Return the Station that a command with these words would have, guards that only say they are ready, and
        `parts` of the test's own."""
        built = build_station(Settings(site=str(self.root), command=("lanectl", *words)))
        return replace(built, **{"jobs": ReadyGuards(), **parts})

    def swap(
        self, label: str, *, station: Station | None = None, interrupts: Interrupts | None = None, **wish: Any
    ) -> Ended:
        """Run a swap in this process; `wish` as in `SwapRequest`."""
        request = SwapRequest(label, **wish)
        told = Told()
        try:
            report = swap(station or self.station("swap", label), request, told, interrupts or Interrupts())
        except LaneError as error:
            return Ended(error.exit_code, told, error=error)
        return Ended(report.exit_code, told, report)

    def recover(self, station: Station | None = None) -> Recovered:
        return recover(station or self.station("recover"), Told())

    def seen(self, ref: str) -> Container:
        container = self.engine.inspect(ref)
        assert container is not None, f"no container {ref}"
        return container

    def containers(self) -> dict[str, Container]:
        """Return this site's containers by name, whoever made them."""
        return {one.name: one for one in self.engine.containers() if one.name.startswith(self.prefix)}

    def ask(self) -> str | None:
        """Ask the public port for a real completion; return the model that answered, None when none did."""
        raise NotImplementedError

    def journals(self) -> list[tuple[Record, ...]]:
        """Return every swap's journal as far as it is written, oldest first."""
        state = self.station().state
        found = (records(state.journal(swap)) for swap in state.swap_ids())
        return sorted(found, key=lambda journal: journal[0].mono)  # two swaps may begin in one second

    def records(self) -> tuple[Record, ...]:
        """Return the newest swap's journal."""
        return self.journals()[-1]

    def record(self, kind: Kind, step: str = "") -> Record | None:
        """Return the newest swap's first record of this kind and step."""
        return next((one for one in self.records() if one.kind is kind and one.step == step), None)


class RealSite(SwapSite):
    """A site whose lanes are real processes: on the local engine, or on Docker."""

    def __init__(
        self, root: Path, station: Mapping[str, Any], image: str, engine: ContainerEngine, prefix: str = ""
    ) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        given = {"paths": {"python": sys.executable}, "images": {"engine": image}}
        super().__init__(root, {**given, **station}, engine, free_ports(2), prefix)

    def lane(
        self,
        name: str,
        *,
        faults: str = "",
        command: Sequence[str] = (*SERVER, *SMALLEST),
        ready: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
        **service: Any,
    ) -> str:
        """Write a lane of one reference engine with these faults; `ready` and `service` change its keys, `more` adds
        keys of the lane. Return its container's name."""
        container = f"{self.prefix}{name}"
        server = {
            "container_name": container,
            "image": "${images.engine}",
            "network_mode": "host",
            "ipc": "host",
            "volumes": ["*${args.binds}"],
            "environment": {"PYTHONDONTWRITEBYTECODE": "1", "REFERENCE_FAULTS": faults},
            "working_dir": str(REPOSITORY_ROOT),
            "entrypoint": ["${paths.python}"],
            "command": list(command),
            "stop_grace_period": "5s",
            "ready": {**READY, **(ready or {})},
            **service,
        }
        self.write_lane(name, {"server": server}, more)
        return container

    def produce(self, name: str = "prod", **lane: Any) -> Container:
        """Make a lane of this name production, from dark; return its container, running and proven."""
        container = self.lane(name, **lane)
        ended = self.swap(name, keep=True, from_dark=True)
        assert ended.outcome == "promoted", ended
        return self.seen(container)

    def ask(self) -> str | None:
        body = json.dumps({"model": MODEL, "prompt": "The capital", "max_tokens": 1}).encode()
        url = f"http://127.0.0.1:{self.public}/v1/completions"
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=SOON_S) as answer:
                said = json.load(answer)
        except OSError:
            return None
        return str(said["model"]) if said["usage"]["completion_tokens"] else None

    def until_answers(self) -> None:
        """Wait until something completes a prompt on the public port."""
        until(self.ask, SOON_S, f"an answer on port {self.public}")

    def lanectl(self, *words: str, within_s: float = 60.0) -> Done:
        """Run a real `lanectl` command to its end."""
        done = subprocess.run(_command(self.root, words), capture_output=True, text=True, timeout=within_s, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def begin(self, *words: str) -> Begun:
        """Start a real `lanectl` command in the background."""
        path = self.root / f"begun-{len(self._started)}.out"
        with path.open("wb") as out:
            process = subprocess.Popen(
                _command(self.root, words), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self._started.append(process)
        return Begun(process, path)

    def until_record(self, kind: Kind, step: str = "", swaps: int = 1) -> Record:
        """Wait until the newest of at least so many swaps has recorded this; return the record."""

        def look() -> Record | None:
            try:
                return self.record(kind, step) if len(self.journals()) >= swaps else None
            except LaneError:
                return None  # the journal's file is there and its first record is not yet

        found = until(look, SOON_S, f"{kind} {step}")
        assert found is not None
        return found

    def guards(self) -> list[int]:
        """Return the pids of this site's guards that are alive."""
        site = os.fsencode(str(self.root))
        processes = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [int(process.name) for process in processes if _guards(process, site)]

    def until_closed(self) -> str:
        """Wait until the newest swap is closed and no guard is left; return its outcome."""

        def look() -> str | None:
            closed = self.record(Kind.CLOSED)
            return str(closed.data["outcome"]) if closed is not None and not self.guards() else None

        try:
            found = until(look, SOON_S, "the swap is closed, its guard gone")
        except AssertionError as error:
            said = [path.read_text() for path in sorted(self.root.glob("state/swaps/*/guard.log"))]
            raise AssertionError(f"{error}; the guards' logs: {said}; the journal: {self.records()[-3:]}") from error
        assert found is not None
        return found

    def close(self) -> None:
        """End what was begun, let guards finish, and remove every container."""
        for process in self._started:
            process.kill()
            process.wait()
        with contextlib.suppress(AssertionError, LaneError):
            until(lambda: not self.guards(), SOON_S, "the guards are gone")
        for container in self.containers().values():
            self.engine.remove(container.id)


@dataclass(frozen=True)
class Begun:
    """A command under way."""

    process: subprocess.Popen[bytes]
    output: Path

    def ended(self, within_s: float = 60.0) -> Done:
        """Wait for its end."""
        code = self.process.wait(within_s)
        return Done(code, self.output.read_text(errors="replace"), "")


@dataclass(frozen=True)
class Done:
    """How a process ended."""

    code: int
    out: str
    err: str


def new_local_site(root: Path) -> RealSite:
    """Make a site on the local engine; the caller closes it."""
    environment = root / "environment"
    environment.mkdir(parents=True)
    (environment / "README").write_text("what the services of this test are made from\n")
    station = {"engine": {"kind": "local", "cdi_spec_dirs": [str(root / "cdi")]}, "args": {"binds": []}}
    engine = LocalEngine(root / "state" / "local", [str(root / "cdi")])
    return RealSite(root, station, reference(environment), engine)


def new_docker_site(root: Path, real: TestEngine, prefix: str) -> RealSite:
    """Make a site on the real Docker engine; its containers' names begin with `prefix`. The caller closes it."""
    station = {
        "engine": {"kind": "docker", "endpoint": real.url, "daemon_id": real.daemon_id},
        "args": {"binds": python_binds()},
        "gpus": dict(GPUS),
    }
    return RealSite(root, station, real.images["pyhost"], DockerEngine(real.url, None), prefix)


@contextlib.contextmanager
def local_site(root: Path) -> Iterator[RealSite]:
    """Give a site on the local engine."""
    yield from _closing(new_local_site(root))


@contextlib.contextmanager
def docker_site(root: Path, real: TestEngine, prefix: str) -> Iterator[RealSite]:
    """Give a site on the real Docker engine; its containers' names begin with `prefix`."""
    yield from _closing(new_docker_site(root, real, prefix))


def _closing(site: RealSite) -> Iterator[RealSite]:
    try:
        yield site
    finally:
        site.close()


def _command(root: Path, words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "lanectl", "--site", str(root), *words]


def _guards(process: Path, site: bytes) -> bool:
    """Whether this process (its folder in /proc) is a guard of the site."""
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"guard" in words and site in words
