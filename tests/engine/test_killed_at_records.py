"""`kill -9` of a swap right after each line it writes: its guard alone brings back what is owed; where the guard is
killed as well, `recover` does. Real processes on both real engines.

`make test` takes a sample, another one every day: its seed is in the tests' names, and LANECTL_DEATH_SEED=SEED repeats
it. `make test-full` takes all.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.docker_engine import DockerEngine
from tests.support.dying import deaths, die
from tests.support.proving import SCENARIOS, Proving
from tests.support.station import RealSite, new_docker_site, new_local_site

SEED = int(os.environ.get("LANECTL_DEATH_SEED") or f"{datetime.now(UTC):%Y%m%d}")
SAMPLE = 8  # on each engine
AT_LEAST = 20  # lines that any of these swaps writes


@pytest.fixture(scope="module")
def on_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proving]:
    proving = Proving(tmp_path_factory.mktemp("deaths"), new_local_site)
    yield proving
    proving.close()


@pytest.fixture(scope="module")
def on_docker(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proving]:
    def make(root: Path) -> RealSite:
        return new_docker_site(root, docker_engine, f"lt-{time.monotonic_ns():x}-")

    proving = Proving(tmp_path_factory.mktemp("deaths"), make)
    yield proving
    proving.close()


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.engine)])
def proving(request: pytest.FixtureRequest) -> Proving:
    found: Proving = request.getfixturevalue(f"on_{request.param}")
    return found


@pytest.mark.parametrize("index", range(SAMPLE), ids=[f"seed-{SEED}-{index}" for index in range(SAMPLE)])
def test_T36_what_is_owed_is_back_after_a_death(proving: Proving, index: int) -> None:
    chance = random.Random(f"{SEED} {index}")
    death = chance.choice(deaths(proving, chance.choice(list(SCENARIOS))))
    print(death)
    die(proving, death)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_T36_what_is_owed_is_back_after_every_death(proving: Proving, scenario: str) -> None:
    every = deaths(proving, scenario)
    assert len(every) >= 2 * AT_LEAST
    failed = {}
    for death in every:
        try:
            die(proving, death)
        except AssertionError as error:
            failed[str(death)] = str(error)
    assert not failed, failed
