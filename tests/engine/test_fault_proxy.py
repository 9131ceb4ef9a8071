"""Every call that a swap makes to a real Docker daemon, spoiled one at a time, in every way: what is owed is back.

`make test` takes a sample, another one every day: its seed is in the tests' names, and LANECTL_FAULT_SEED=SEED repeats
it. `make test-full` takes all.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.support.api_faults import FAULTS
from tests.support.docker_engine import DockerEngine
from tests.support.engine_daemon import Daemon
from tests.support.fault_site import FaultSite
from tests.support.proving import SCENARIOS

SAMPLE = 60
SEED = int(os.environ.get("LANECTL_FAULT_SEED") or f"{datetime.now(UTC):%Y%m%d}")
AT_LEAST = 40  # calls that any of these swaps makes
# Always run: those that a swap did not survive once, and cases from the field.
KNOWN = {
    "a_probe_that_is_not_removed_at_once": ("measured", "500", "DELETE /containers/lanectl-cdi-probe #1"),
    "a_restart_policy_that_is_not_given_back_at_once": ("measured", "500", "POST /containers/prod/update #2"),
    "a_daemon_that_dies_while_the_policy_is_given_back": (
        "measured",
        "daemon killed",
        "POST /containers/prod/update #2",
    ),
    "a_parked_container_that_is_denied_once": ("measured", "404", "GET /containers/prod/json #7"),
    "a_running_container_that_is_denied_at_its_stop": ("measured", "404", "POST /containers/prod/stop #1"),
    "half_an_answer": ("measured", "reset within the answer", "GET /containers/json #2"),
    "T20_no_answer_to_the_stop": ("measured", "hang before the effect", "POST /containers/prod/stop #1"),
    "T22_a_removal_is_in_progress": ("measured", "409", "DELETE /containers/cand.candidate #1"),
    "T40_a_restart_while_production_is_parked": (
        "measured",
        "daemon restarted",
        "POST /containers/cand.candidate/start #1",
    ),
}


@pytest.fixture(scope="module")
def faults(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultSite]:
    """A site on a daemon beside the one of the other tests; only where the tests could start that one themselves."""
    if not docker_engine.private:
        pytest.skip(f"{docker_engine.source} is not ours to start another engine beside")
    folder = tmp_path_factory.mktemp("faults")
    daemon = Daemon(folder / "daemon", "faults").start()
    try:
        site = FaultSite(folder / "proxy", daemon)
        try:
            yield site
        finally:
            site.close()
    finally:
        daemon.stop()


@pytest.mark.parametrize("index", range(SAMPLE), ids=[f"seed-{SEED}-{index}" for index in range(SAMPLE)])
def test_a_spoiled_call_of_a_swap_is_survived(faults: FaultSite, index: int) -> None:
    case = random.Random(SEED).sample(faults.cases, SAMPLE)[index]
    print(case)
    faults.prove(case)


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_case_is_survived(faults: FaultSite, name: str) -> None:
    scenario, fault, call = KNOWN[name]
    (case,) = [one for one in faults.cases if (one.scenario, one.fault, str(one.call)) == (scenario, fault, call)]
    survived = faults.prove(case)
    assert not survived.dark


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_call_of_a_swap_may_be_spoiled(faults: FaultSite, scenario: str, fault: str) -> None:
    cases = [case for case in faults.cases if (case.scenario, case.fault) == (scenario, fault)]
    assert len(cases) >= AT_LEAST, cases
    failed = {}
    for case in cases:
        try:
            faults.prove(case)
        except AssertionError as error:
            failed[str(case)] = str(error)
    assert not failed, failed
