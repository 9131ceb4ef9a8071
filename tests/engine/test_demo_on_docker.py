"""`lanectl demo --docker`: the same demo in containers of a real engine, from an image that is made, not pulled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docker_engine import DockerEngine
from tests.support.engine_api import call

WITHIN_S = 120.0


def _lanectl(engine: DockerEngine, root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "lanectl", "--site", str(root), *words]
    environment = {**os.environ, "DOCKER_HOST": engine.url}
    return subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False, env=environment)


@pytest.fixture
def root(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[Path]:
    taken = {name for one in call(docker_engine.url, "GET", "/containers/json?all=1") for name in one["Names"]}
    if {"/demo-v25", "/demo-v25-sidecar", "/demo-gracetier"} & taken:
        pytest.skip("a demo of somebody's is on this engine: its container names are taken")
    yield tmp_path / "demo"
    _lanectl(docker_engine, tmp_path / "demo", "demo", "--stop")


def test_the_demo_runs_in_containers_and_leaves_only_production(docker_engine: DockerEngine, root: Path) -> None:
    done = _lanectl(docker_engine, root, "demo", "--docker", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["swap"]["outcome"], said["swap"]["restored"]) == ("measured", "v25")
    container = call(docker_engine.url, "GET", "/containers/demo-v25/json")
    assert container["State"]["Running"]
    assert container["Image"].startswith("sha256:")
    stopped = _lanectl(docker_engine, root, "demo", "--stop", "--json")
    assert json.loads(stopped.stdout)["removed"] == 2
