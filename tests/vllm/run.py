"""`make test-vllm`: swap a real vLLM in on a real container engine, measure it, and have production back.

`python -m tests.vllm.run [FOLDER]` makes a site in FOLDER (by default one in the cache folder, made anew), installs
what is missing, brings up production (a lane of the reference engine), runs `lanectl swap vllm-cpu --measure`, and
checks from outside that production answers again and that nothing of vLLM is left. Exit code 0: all of that held.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.docker_engine import DockerEngine, docker_engine, remove_containers
from tests.support.engine_api import call
from tests.support.engine_images import REPOSITORY_ROOT, python_binds
from tests.support.engine_packages import EngineUnavailable
from tests.vllm.setup import CannotSetUp, Installed, cache_folder, ensure_vllm

PRODUCTION = "reference"
CANDIDATE = "vllm-cpu"
CONTAINERS = "lanectl-vllm-"  # how the names of both lanes' containers start
PRODUCTION_CONTAINER = f"{CONTAINERS}production"
ANSWER_LIMIT_S = 10.0


class Failed(Exception):
    """What did not hold, in one sentence."""


def make_site(folder: Path, engine: DockerEngine, vllm: Installed) -> int:
    """Make a site with both lanes in `folder`, which must not exist. Return production's port."""
    public, trial = _free_ports()
    (folder / "lanes").mkdir(parents=True)
    shutil.copy(REPOSITORY_ROOT / "lanes" / f"{CANDIDATE}.yaml", folder / "lanes")
    _write(folder / "lanes" / f"{PRODUCTION}.yaml", production_lane())
    _write(folder / "station.yaml", station(engine, vllm, public, trial))
    return public


def station(engine: DockerEngine, vllm: Installed, public: int, trial: int) -> dict[str, Any]:
    """Return station.yaml: one image without content, and the paths that make it a Python or a vLLM."""
    return {
        "station": "test-vllm",
        "engine": {"kind": "docker", "endpoint": engine.url, "daemon_id": engine.daemon_id},
        "ports": {"public": public, "trial": trial},
        "images": {"vllm_cpu": engine.images["pyhost"], "python": engine.images["pyhost"]},
        "paths": {"vllm_cpu": str(vllm.vllm), "vllm_cpu_model": str(vllm.model), "python": sys.executable},
        "args": {
            "vllm_cpu_volumes": python_binds(vllm.python, extra=[vllm.model]),
            "python_volumes": python_binds(),
        },
        "reboot_recovery": "accepted",
    }


def production_lane() -> dict[str, Any]:
    """Return the lane that vLLM takes the place of: the reference engine, at its quick size."""
    server = {
        "container_name": PRODUCTION_CONTAINER,
        "image": "${images.python}",
        "network_mode": "host",
        "volumes": ["*${args.python_volumes}"],
        "environment": {"PYTHONDONTWRITEBYTECODE": "1"},
        "working_dir": str(REPOSITORY_ROOT),
        "entrypoint": ["${paths.python}"],
        "command": [
            *("-m", "lanectl.reference.server", "--shape", "tiny", "--served-model-name", PRODUCTION),
            *("--host", "${host}", "--port", "${port}", "--max-model-len", "2048"),
        ],
        "ready": {"health": "/health", "models": True, "completion": {"within": "30s"}, "timeout": "2m"},
    }
    return {
        "lane": PRODUCTION,
        "summary": "Production while a real vLLM is tried: the reference engine",
        "served_model": PRODUCTION,
        "max_model_len": 2048,
        "services": {"server": server},
    }


def swap_in_and_out(folder: Path, engine: DockerEngine, port: int) -> None:
    """Bring production up, swap vLLM in with a measurement, and check what is left. Raise Failed."""
    _lanectl(folder, "lanes", "validate")
    _lanectl(folder, "swap", PRODUCTION, "--keep", "--from-dark", "--yes")
    before = _production_container(engine)
    _lanectl(folder, "swap", CANDIDATE, "--measure", "--yes")
    if _served_models(port) != [PRODUCTION]:
        raise Failed(f"port {port} serves {_served_models(port)}, not {PRODUCTION}")
    if _production_container(engine) != before:
        raise Failed("production runs in another container than before")
    names = [name for name in _names(engine) if name.startswith(f"/{CONTAINERS}")]
    if names != [f"/{PRODUCTION_CONTAINER}"]:
        raise Failed(f"left over: {names}")
    _lanectl(folder, "audit", "verify")


def _lanectl(folder: Path, *words: str) -> None:
    print(f"$ lanectl {' '.join(words)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "lanectl", "--site", folder, *words], check=False)
    if done.returncode != 0:
        raise Failed(f"lanectl {' '.join(words)} exited {done.returncode}")


def _production_container(engine: DockerEngine) -> str:
    state = call(engine.url, "GET", f"/containers/{PRODUCTION_CONTAINER}/json")
    if not state["State"]["Running"]:
        raise Failed(f"{PRODUCTION_CONTAINER} does not run")
    return str(state["Id"])


def _names(engine: DockerEngine) -> list[str]:
    return [name for container in call(engine.url, "GET", "/containers/json?all=1") for name in container["Names"]]


def _served_models(port: int) -> list[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=ANSWER_LIMIT_S) as answer:
        return [model["id"] for model in json.load(answer)["data"]]


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def main(arguments: Sequence[str]) -> int:
    """Given at most a folder for the site, do all of it and return the exit code."""
    folder = Path(arguments[0]) if arguments else cache_folder() / "site"
    if not arguments:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        vllm = ensure_vllm()
        with docker_engine() as engine:
            print(f"container engine: {engine.url} ({engine.source}); site: {folder}", flush=True)
            remove_containers(engine.url, CONTAINERS)  # of a run that was killed
            try:
                swap_in_and_out(folder, engine, make_site(folder, engine, vllm))
            finally:
                remove_containers(engine.url, CONTAINERS)
    except (CannotSetUp, EngineUnavailable, Failed, OSError) as error:
        print(f"test-vllm failed: {error}", file=sys.stderr)
        return 1
    print(f"A real vLLM was swapped in, measured, and production is back. Results: {folder / 'state' / 'swaps'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
