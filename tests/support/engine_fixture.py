"""Fixtures for tests on a real container engine: `docker_engine`, `cdi_names`, `container_prefix`.

Which engine that is, is in docker_engine.py. Where there is none the tests are skipped with the reason; with
LANECTL_REQUIRE_ENGINE=1 they fail instead.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NoReturn

import pytest

from tests.support import docker_engine as found
from tests.support.docker_engine import DockerEngine
from tests.support.engine_api import call
from tests.support.engine_packages import EngineUnavailable, why_not_here

PREFIX_DIGITS = 8  # of randomness in a container's name: enough for the tests that run at one time


def pytest_report_header() -> str:
    """Say before the first test which engine the engine tier will use."""
    try:
        answers = found.find_engine()
    except (EngineUnavailable, OSError) as error:
        return f"container engine: none, {error}"
    if answers:
        return f"container engine: {answers[0]} ({answers[1]})"
    return f"container engine: {why_not_here() or 'a private one, started when a test needs it'}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the engine, so that `-m 'not engine'` leaves it out whoever wrote the test."""
    for item in items:
        if "docker_engine" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """A real Docker engine with the test images; skipped (failed with LANECTL_REQUIRE_ENGINE=1) where there is none."""
    with ExitStack() as stack:
        try:
            engine = stack.enter_context(found.docker_engine())
        except (EngineUnavailable, OSError) as error:
            _no_engine(str(error))
        yield engine


@pytest.fixture(scope="session")
def cdi_names(docker_engine: DockerEngine) -> dict[str, str]:
    """The CDI names of the test GPUs by role (`gb300`, `rtx`); skipped where the engine does not know them."""
    if not docker_engine.cdi:
        folders = call(docker_engine.url, "GET", "/info").get("CDISpecDirs")
        _no_engine(
            f"{docker_engine.url} knows no test GPUs: python -m tests.support.private_engine cdi FOLDER, "
            f"with one of {folders}"
        )
    return docker_engine.cdi


@pytest.fixture
def container_prefix(docker_engine: DockerEngine) -> Iterator[str]:
    """A prefix for this test's container names; every container whose name starts with it is removed afterwards."""
    prefix = f"lt-{uuid.uuid4().hex[:PREFIX_DIGITS]}-"
    yield prefix
    found.remove_containers(docker_engine.url, prefix)


def _no_engine(reason: str) -> NoReturn:
    if os.environ.get("LANECTL_REQUIRE_ENGINE") == "1":
        pytest.fail(f"LANECTL_REQUIRE_ENGINE=1: {reason}", pytrace=False)
    pytest.skip(reason)
