"""For how long an outside client sees the service gone in a swap of two instant-start containers, A to B and B to A.

The same two containers in every case, on the same engine, at a port of the case's own: busybox httpd with two files
(/health and /v1/models), which ends at once on SIGTERM. The client is a process of its own (prober.py).

  bare           Engine API calls only: stop one, start the other, poll until it answers
  compose        `docker compose down` of one, `docker compose up --wait` of the other
  lanectl        `lanectl swap --keep --yes`, its state on a disk
  lanectl_tmpfs  the same, its state on a tmpfs: what the journal's fsyncs cost is the difference

Needs a Docker engine with the compose plugin: takes the one that answers, else starts a private one (Debian, root).

Run: python benches/dark_time.py [--runs N] [--json] [--disk DIR] [--tmpfs DIR]
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import Result, command_line, interleaved, result, show
from prober import ask

from tests.support.docker_engine import DockerEngine, docker_engine, remove_containers
from tests.support.engine_packages import EngineUnavailable, cache_folder
from tests.support.free_ports import free_ports

RUNS = 20  # ten in each direction
UNIT = "ms"
SIDES = ("a", "b")
MODEL = "bench"
GRACE_S = 10
POLL_EVERY_S = 0.002
ANSWER_WITHIN_S = 30.0
OVERHEAD_MS = 60  # what lanectl may add to the bare calls
JOURNAL_MS = 20  # what its journal may cost of that
PROBER = Path(__file__).with_name("prober.py")
SERVE = 'trap "exit 0" TERM; httpd -f -p 127.0.0.1:{port} -h /srv & wait'


class Swaps:
    """Two containers that take turns on one port."""

    def __init__(self, folder: Path, engine: DockerEngine, prefix: str) -> None:
        self.engine = engine
        self.folder = folder
        self.prefix = prefix
        self.port = free_ports(1)[0]
        self.side = 0
        for side in SIDES:
            content = folder / side
            (content / "v1").mkdir(parents=True)
            (content / "health").write_text(f"{side}\n")
            (content / "v1" / "models").write_text(json.dumps({"data": [{"id": MODEL}]}))

    @property
    def serve(self) -> str:
        return SERVE.format(port=self.port)

    def name(self, side: str) -> str:
        return f"{self.prefix}{side}"

    def bind(self, side: str) -> str:
        return f"{self.folder / side}:/srv:ro"

    def service(self, side: str) -> dict[str, Any]:
        """Return the container in the words that compose files and lane specs share."""
        return {
            "container_name": self.name(side),
            "image": self.engine.images["busybox"],
            "network_mode": "host",
            "volumes": [self.bind(side)],
            "stop_grace_period": f"{GRACE_S}s",
        }

    def swap(self) -> float:
        """Swap to the other one; return for how many milliseconds the client saw neither."""
        before, after = SIDES[self.side], SIDES[1 - self.side]
        prober = subprocess.Popen([sys.executable, "-I", PROBER, str(self.port)], stdout=subprocess.PIPE, text=True)
        try:
            assert prober.stdout is not None
            if prober.stdout.readline() != "asking\n":
                raise SystemExit(f"{self.name(before)} does not answer on port {self.port}")
            self.change(before, after)
            gone_ms = float(prober.stdout.readline())
        finally:
            prober.kill()
            prober.wait()
        self.side = 1 - self.side
        return gone_ms

    def change(self, before: str, after: str) -> None:
        raise NotImplementedError


class Bare(Swaps):
    """The least that any tool must do."""

    def __init__(self, folder: Path, engine: DockerEngine, prefix: str) -> None:
        import docker

        super().__init__(folder, engine, prefix)
        self.api = docker.APIClient(base_url=engine.url, version="auto")
        for side in SIDES:
            self.api.create_container(
                engine.images["busybox"],
                entrypoint=["sh", "-c", self.serve],
                name=self.name(side),
                host_config=self.api.create_host_config(network_mode="host", binds=[self.bind(side)]),
            )
        self.api.start(self.name(SIDES[0]))
        await_answer(self.port)

    def change(self, before: str, after: str) -> None:
        self.api.stop(self.name(before), timeout=GRACE_S)
        self.api.start(self.name(after))
        await_answer(self.port)


class Compose(Swaps):
    """What an operator has without lanectl: it proves nothing but that the container runs."""

    def __init__(self, folder: Path, engine: DockerEngine, prefix: str) -> None:
        super().__init__(folder, engine, prefix)
        for side in SIDES:
            service = {**self.service(side), "entrypoint": ["sh", "-c", self.serve]}
            project = {"name": self.name(side), "services": {"server": service}}
            (folder / f"{side}.yaml").write_text(json.dumps(project))
        self._compose(SIDES[0], "up", "--wait")

    def change(self, before: str, after: str) -> None:
        self._compose(before, "down")
        self._compose(after, "up", "--wait")

    def _compose(self, side: str, *words: str) -> None:
        assert self.engine.docker is not None
        run([*self.engine.docker, "compose", "-f", str(self.folder / f"{side}.yaml"), *words])


class Lanectl(Swaps):
    """The whole of `lanectl swap`: checks, journal, guard, the stop proven, the ladder climbed."""

    def __init__(self, folder: Path, engine: DockerEngine, prefix: str) -> None:
        super().__init__(folder, engine, prefix)
        station = {
            "station": "bench",
            "engine": {"kind": "docker", "endpoint": engine.url, "daemon_id": engine.daemon_id},
            "ports": {"public": self.port, "trial": free_ports(1)[0]},
            "reboot_recovery": "accepted",
        }
        (folder / "station.yaml").write_text(json.dumps(station))
        (folder / "lanes").mkdir()
        for side in SIDES:
            service = {
                **self.service(side),
                "entrypoint": ["sh", "-c"],
                "command": [SERVE.format(port="${port}")],
                "ready": {"health": "/health", "models": True, "timeout": "30s"},
            }
            lane = {"lane": side, "served_model": MODEL, "services": {"server": service}}
            (folder / "lanes" / f"{side}.yaml").write_text(json.dumps(lane))
        self._lanectl("swap", SIDES[0], "--keep", "--from-dark", "--yes")

    def change(self, before: str, after: str) -> None:
        self._lanectl("swap", after, "--keep", "--yes")

    def _lanectl(self, *words: str) -> None:
        run([sys.executable, "-m", "lanectl", "--site", str(self.folder), *words])


def run(command: list[str]) -> None:
    """Run a command to its end. Raise SystemExit with its words when it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} exited {done.returncode}: {done.stdout}{done.stderr}")


def await_answer(port: int) -> None:
    """Poll until the service answers."""
    until = time.monotonic() + ANSWER_WITHIN_S
    while ask(port) is None:
        if time.monotonic() > until:
            raise SystemExit(f"nothing answers on port {port}")
        time.sleep(POLL_EVERY_S)


def file_system(folder: Path) -> str:
    """Return the type of the file system a folder is on."""
    said = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True)
    return said.stdout.strip()


def measure(runs: int, disk: Path, tmpfs: Path) -> dict[str, Result]:
    """Given where state is to be kept, run all cases in turn and return their results."""
    for folder, wanted in ((disk, False), (tmpfs, True)):
        if (file_system(folder) == "tmpfs") is not wanted:
            raise SystemExit(
                f"{folder} is {'not on a' if wanted else 'on a'} tmpfs: choose another with --disk, --tmpfs"
            )
    prefix = f"lanectl-bench-{secrets.token_hex(4)}-"
    with ExitStack() as stack:
        engine = stack.enter_context(docker_engine())
        if engine.docker is None:
            raise SystemExit("there is no `docker compose` to compare with")
        stack.callback(remove_containers, engine.url, prefix)

        def folder(on: Path) -> Path:
            return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lanectl-bench-", dir=on)))

        cases = {
            "bare": Bare(folder(disk), engine, f"{prefix}bare-"),
            "compose": Compose(folder(disk), engine, f"{prefix}compose-"),
            "lanectl": Lanectl(folder(disk), engine, f"{prefix}disk-"),
            "lanectl_tmpfs": Lanectl(folder(tmpfs), engine, f"{prefix}tmpfs-"),
        }
        values = interleaved({name: case.swap for name, case in cases.items()}, runs)
    return {name: result(gone, UNIT) for name, gone in values.items()}


def main() -> None:
    parser = command_line(__doc__, RUNS)
    parser.add_argument("--disk", type=Path, default=cache_folder(), help="where `lanectl` keeps its state")
    parser.add_argument("--tmpfs", type=Path, default=Path("/dev/shm"), help="where `lanectl_tmpfs` does")
    options = parser.parse_args()
    options.disk.mkdir(parents=True, exist_ok=True)
    try:
        results = measure(options.runs, options.disk, options.tmpfs)
    except EngineUnavailable as error:
        raise SystemExit(str(error)) from error
    median = {case: float(row["median"]) for case, row in results.items()}
    over, journal = median["lanectl"] - median["bare"], median["lanectl"] - median["lanectl_tmpfs"]
    targets = {
        "lanectl is dark for less than compose": median["lanectl"] < median["compose"],
        f"at most {OVERHEAD_MS} ms more than the bare calls: {over:.1f}": over <= OVERHEAD_MS,
        f"the journal costs at most {JOURNAL_MS} ms of it: {journal:.1f}": journal <= JOURNAL_MS,
    }
    show(results, targets, as_json=options.json)


if __name__ == "__main__":
    main()
