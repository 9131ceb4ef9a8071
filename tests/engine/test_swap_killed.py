"""`kill -9` of lanectl in the middle of a swap, with nobody left but the guard: production is back, proven and alone,
and the journal says how. On both real engines, through real processes."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import Any

import pytest

from lanectl.core.journal import Kind
from lanectl.errors import ExitCode
from tests.support.aftermath import is_back, serves_alone
from tests.support.poll import until
from tests.support.station import SOON_S, RealSite

DEAF = {"faults": "ignore-sigterm", "stop_grace_period": "2s"}


@dataclass(frozen=True)
class Case:
    """When to kill: once this is recorded. `prod` and `cand` make the swap dwell there; `outcome` is how it closes."""

    kind: Kind
    step: str
    outcome: str
    prod: dict[str, Any] = field(default_factory=dict)
    cand: dict[str, Any] = field(default_factory=dict)
    wish: tuple[str, ...] = ()


CASES = {
    "before_production_is_owed": Case(Kind.BEGIN, "guard", "refused"),
    "draining": Case(
        Kind.BEGIN, "drain", "recovered:drain", {"more": {"drain": {"idle_for": "30s", "deadline": "30s"}}}
    ),
    "stopping": Case(Kind.BEGIN, "stop:server", "recovered:stop:server", DEAF),
    "booting": Case(Kind.BEGIN, "ready:server", "recovered:ready:server", cand={"faults": "boot-delay=20"}),
    "measuring": Case(Kind.BEGIN, "measure", "recovered:measure", wish=("--measure", "--profile", "quick")),
    "coming_back": Case(Kind.BEGIN, "prove", "recovered:prove", {"faults": "boot-delay=1"}),
}


# What an engine's own state has no part in is proven on the quick one; `make test-full` does all on both.
ON_DOCKER_TOO = ("stopping", "booting", "coming_back")
EACH = [pytest.param("local", name, id=f"{name}-local") for name in CASES]
for name in CASES:
    marks = [pytest.mark.engine] if name in ON_DOCKER_TOO else [pytest.mark.engine, pytest.mark.slow]
    EACH.append(pytest.param("docker", name, id=f"{name}-docker", marks=marks))


@pytest.mark.parametrize(("site", "name"), EACH, indirect=["site"])
def test_T36_production_is_back_when_lanectl_is_killed_while(site: RealSite, name: str) -> None:
    case = CASES[name]
    production = site.produce(**case.prod)
    site.lane("cand", **case.cand)
    begun = site.begin("swap", "cand", "--yes", *case.wish)
    site.until_record(case.kind, case.step, swaps=2)
    if case.step == "guard":
        until(site.guards, SOON_S, "the guard's process")
    begun.process.kill()
    assert site.until_closed() == case.outcome
    is_back(site, production, killed=1)
    if name == "stopping":
        # The engine was told to stop that run and may still be at it: it must not be the one that is relied on.
        assert site.seen(production.id).started_at != production.started_at


def test_T36_once_committed_the_candidate_is_what_comes_back(site: RealSite) -> None:
    old = site.produce()
    site.lane("cand")
    begun = site.begin("swap", "cand", "--yes", "--keep")
    site.until_record(Kind.COMMITTED, swaps=2)
    begun.process.kill()
    assert site.until_closed() == "promoted"
    serves_alone(site, f"{site.prefix}cand", killed=1)
    assert not site.seen(old.id).running


def test_T36_when_the_guard_dies_too_the_next_command_says_recover_and_recover_works(site: RealSite) -> None:
    production = site.produce()
    site.lane("cand", faults="boot-delay=20")
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    (guard,) = site.guards()
    os.kill(guard, signal.SIGKILL)
    begun.process.kill()
    begun.process.wait()
    refused = site.lanectl("swap", "cand", "--yes")
    assert refused.code == ExitCode.UNFINISHED, refused
    assert "lanectl recover" in refused.err
    recovered = site.lanectl("recover")
    assert recovered.code == ExitCode.OK, recovered
    assert site.until_closed() == "recovered:ready:server"
    is_back(site, production, killed=1)


def test_a_guard_that_is_killed_does_not_keep_the_swap_from_its_end(on_local: RealSite) -> None:
    site = on_local
    production = site.produce()
    site.lane("cand", faults="boot-delay=1")
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    (guard,) = site.guards()
    os.kill(guard, signal.SIGKILL)
    done = begun.ended()
    assert done.code == ExitCode.OK, done
    is_back(site, production)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_restores_production_and_exits_130(on_local: RealSite, number: signal.Signals) -> None:
    production = on_local.produce()
    on_local.lane("cand", faults="boot-delay=20")
    begun = on_local.begin("swap", "cand", "--yes")
    on_local.until_record(Kind.BEGIN, "ready:server", swaps=2)
    begun.process.send_signal(number)
    done = begun.ended()
    assert done.code == ExitCode.INTERRUPTED, done
    assert "prod is restored and serving" in done.out
    assert on_local.until_closed() == "interrupted"
    is_back(on_local, production)
