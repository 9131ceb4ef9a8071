"""How quick lanectl starts, as ratios: each run starts the command, and right after it the Python that it is held to.

  help           `lanectl --help`                       to  python -c "import typer"
  status         `lanectl status`, local engine         to  python -c "import typer, docker, yaml"
  status_docker  `lanectl status`, Docker engine        to  the same
  health         `lanectl health URL` of a tiny server  to  python -c "import typer"

Production serves in both sites, so both looks ask it for all that its lane's spec asks; the demo site's is a real
completion. The cases ending in _ms are the commands' own times. Without a container engine status_docker is left out.

Run: python benches/startup.py [--runs N] [--json]
"""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import Result, command_line, interleaved, result, show
from dark_time import Lanectl, run

from lanectl.engine.environment import reference
from lanectl.engine.local import LocalEngine
from lanectl.site.demo import PRODUCTION, write_demo_site
from tests.support.docker_engine import docker_engine, remove_containers
from tests.support.engine_packages import EngineUnavailable
from tests.support.free_ports import free_ports

RUNS = 21
AT_MOST = 1.4
TYPER = ["-c", "import typer"]
WITH_ENGINE = ["-c", "import typer, docker, yaml"]


Pairs = dict[str, tuple[list[str], list[str]]]


def seconds(words: list[str]) -> float:
    """Return how long a Python with these words runs. Raise SystemExit when it does not end with 0."""
    began = time.monotonic()
    run([sys.executable, *words])
    return time.monotonic() - began


@contextmanager
def demo_site() -> Iterator[tuple[Path, int]]:
    """Give a demo site on the local engine whose production serves, and its public port."""
    with tempfile.TemporaryDirectory(prefix="lanectl-bench-") as place:
        root, environment = Path(place) / "site", Path(place) / "environment"
        environment.mkdir()
        (environment / "README").write_text("what the demo's services are made from\n")
        public, trial = free_ports(2)
        write_demo_site(
            root, engine="local", python=sys.executable, image=reference(environment), ports=(public, trial)
        )
        try:
            words = ["swap", PRODUCTION, "--keep", "--from-dark", "--yes"]
            run([sys.executable, "-m", "lanectl", "--site", str(root), *words])
            yield root, public
        finally:
            engine = LocalEngine(root / "state" / "local", [])
            for container in engine.containers():
                engine.remove(container.id)


@contextmanager
def docker_site() -> Iterator[Path]:
    """Give a site on a Docker engine whose production serves. Raise EngineUnavailable."""
    prefix = f"lanectl-bench-{secrets.token_hex(4)}-"
    with docker_engine() as engine, tempfile.TemporaryDirectory(prefix="lanectl-bench-") as folder:
        try:
            Lanectl(Path(folder), engine, prefix)
            yield Path(folder)
        finally:
            remove_containers(engine.url, prefix)


def measure(runs: int) -> dict[str, Result]:
    with ExitStack() as stack:
        demo, port = stack.enter_context(demo_site())
        pairs: Pairs = {
            "help": (["-m", "lanectl", "--help"], TYPER),
            "status": (["-m", "lanectl", "--site", str(demo), "status"], WITH_ENGINE),
            "health": (["-m", "lanectl", "health", f"http://127.0.0.1:{port}"], TYPER),
        }
        try:
            site = stack.enter_context(docker_site())
            pairs["status_docker"] = (["-m", "lanectl", "--site", str(site), "status"], WITH_ENGINE)
        except EngineUnavailable as error:
            print(f"status_docker is left out: {error}", file=sys.stderr)
        steps: dict[str, Callable[[], float]] = {}
        for name, (words, base) in pairs.items():
            steps[name] = lambda words=words: seconds(words)
            steps[f"{name}_base"] = lambda base=base: seconds(base)
        interleaved(steps, 1)  # the first start compiles what has changed
        taken = interleaved(steps, runs)
    results = {}
    for name in pairs:
        ratios = [own / base for own, base in zip(taken[name], taken[f"{name}_base"], strict=True)]
        results[name] = result(ratios, "x", digits=2)
    for name in pairs:
        results[f"{name}_ms"] = result([value * 1000 for value in taken[name]], "ms")
    return results


def main() -> None:
    options = command_line(__doc__, RUNS).parse_args()
    results = measure(options.runs)
    held = {name: float(results[name]["median"]) for name in ("help", "status", "status_docker") if name in results}
    targets = {f"{name} at most {AT_MOST} times its base": ratio <= AT_MOST for name, ratio in held.items()}
    show(results, targets, as_json=options.json)


if __name__ == "__main__":
    main()
