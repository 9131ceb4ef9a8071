"""Sites on real engines for the swap tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docker_engine import DockerEngine
from tests.support.station import RealSite, docker_site, local_site


@pytest.fixture
def on_docker(tmp_path: Path, docker_engine: DockerEngine, container_prefix: str) -> Iterator[RealSite]:
    """A site on the real Docker engine."""
    with docker_site(tmp_path / "site", docker_engine, container_prefix) as site:
        yield site


@pytest.fixture
def on_local(tmp_path: Path) -> Iterator[RealSite]:
    """A site on the local engine: real processes, no container engine needed."""
    with local_site(tmp_path / "site") as site:
        yield site


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.engine)])
def site(request: pytest.FixtureRequest) -> RealSite:
    """A site on each real engine in turn."""
    found: RealSite = request.getfixturevalue(f"on_{request.param}")
    return found
