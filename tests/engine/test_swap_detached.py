"""T37: the swap is a job of the Station. Whoever started it or follows it may die, hang up or come back later."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from lanectl.core.container import Container
from lanectl.core.journal import Kind
from lanectl.errors import ExitCode
from tests.support.aftermath import is_back
from tests.support.poll import until
from tests.support.proving import FAILS, INSTANT
from tests.support.station import SOON_S, RealSite
from tests.support.terminal import Terminal

BOOTS_SLOWLY: dict[str, Any] = {"faults": "boot-delay=5"}


@pytest.fixture
def production(site: RealSite) -> Container:
    made = site.produce(**INSTANT)
    site.lane("cand", **BOOTS_SLOWLY)
    site.lane("bad", **FAILS)
    return made


def _detached(site: RealSite, *words: str) -> str:
    done = site.lanectl("swap", *words, "--yes", "--detach", "--json")
    assert done.code == ExitCode.OK, done
    return str(json.loads(done.out)["swap"])


def _pid_of(site: RealSite) -> int:
    """Return the swap's own process, as the lock names it."""
    holder = until(lambda: _holder(site), SOON_S, "the job holds the lock")
    assert holder is not None
    return holder


def _holder(site: RealSite) -> int | None:
    said = site.lanectl("status", "--json")
    held = json.loads(said.out).get("holder")
    return int(held["pid"]) if held else None


def test_T37_the_line_drops_while_the_swap_is_followed_and_it_can_be_followed_again(
    site: RealSite, production: Container
) -> None:
    with Terminal(site.root, "swap", "cand", "--yes", "--detach") as terminal:
        assert terminal.ended() == ExitCode.OK
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    with Terminal(site.root, "attach") as terminal:
        terminal.sees("READY")
        terminal.close()
        terminal.process.wait(SOON_S)
    followed = site.lanectl("attach")
    assert followed.code == ExitCode.OK, followed
    assert "prod is restored and serving" in followed.out
    assert site.until_closed() == "proven"
    is_back(site, production)


def test_T37_any_number_may_follow_and_a_followers_death_changes_nothing(site: RealSite, production: Container) -> None:
    swap = _detached(site, "cand")
    followers = [site.begin("attach", swap) for _ in range(3)]
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    followers[0].process.kill()
    followers[1].process.send_signal(signal.SIGINT)
    assert followers[2].ended().code == ExitCode.OK
    assert site.until_closed() == "proven"
    is_back(site, production)


def test_T37_followed_only_after_its_end_it_says_how_it_ended(site: RealSite, production: Container) -> None:
    swap = _detached(site, "bad")
    site.until_record(Kind.CLOSED, swaps=2)
    followed = site.lanectl("attach", swap)
    assert followed.code == ExitCode.CANDIDATE, followed
    assert "RuntimeError: Engine core initialization failed" in followed.out
    is_back(site, production)


def test_T37_the_job_is_killed_and_a_follower_sees_its_guard_bring_production_back(
    site: RealSite, production: Container
) -> None:
    swap = _detached(site, "cand")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    follower = site.begin("attach", swap)
    os.kill(_pid_of(site), signal.SIGKILL)
    done = follower.ended()
    assert done.code == ExitCode.CANDIDATE, done
    assert "recovered:ready:server. prod is restored and serving" in done.out
    assert site.until_closed() == "recovered:ready:server"
    is_back(site, production, killed=1)


def test_T14_the_job_is_in_no_session_of_who_started_it(site: RealSite, production: Container) -> None:
    """What logging out ends, or cleans up after, is the login's session: the swap and its guard are in none of it."""
    swap = _detached(site, "cand")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    ours = os.getsid(0)
    job, guards = _pid_of(site), site.guards()
    assert guards
    sessions = [os.getsid(pid) for pid in (job, *guards)]
    assert ours not in sessions
    assert len(set(sessions)) == len(sessions), "the guard is not in the swap's session either"
    assert site.lanectl("attach", swap).code == ExitCode.OK
    is_back(site, production)
