"""Several commands at once on one site, as real processes: one of them works, the others say so, nothing is lost."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from lanectl.core.container import Container
from lanectl.core.journal import Kind
from lanectl.errors import ExitCode
from tests.support.aftermath import is_back
from tests.support.poll import until
from tests.support.proving import INSTANT
from tests.support.station import SOON_S, Begun, RealSite

OPERATORS = 4
LOOKS = 20
DWELLS = {"faults": "boot-delay=60", "ready": {"timeout": "2m"}}  # until it is told to stop


@pytest.fixture
def production(site: RealSite) -> Container:
    made = site.produce(**INSTANT)
    site.lane("cand", **DWELLS)
    return made


def test_T35_of_swaps_started_at_the_same_moment_one_runs_and_the_others_name_it(
    site: RealSite, production: Container
) -> None:
    begun = [site.begin("swap", "cand", "--yes") for _ in range(OPERATORS)]
    until(lambda: len(_running(begun)) <= 1, SOON_S, "all but one have ended")
    (winner,) = _running(begun)
    for one in begun:
        if one is not winner:
            done = one.ended()
            assert done.code == ExitCode.BUSY, done
            words = (f"pid {winner.process.pid}", "swap cand", "since ", "phase ", "lanectl status")
            assert [word for word in words if word not in done.out] == [], done
    assert len(site.journals()) == 2, "production's own, and the one that runs"
    _stop(winner)
    is_back(site, production)


def _running(begun: list[Begun]) -> list[Begun]:
    return [one for one in begun if one.process.poll() is None]


def _stop(begun: Begun) -> None:
    begun.process.send_signal(signal.SIGTERM)
    assert begun.ended().code == ExitCode.INTERRUPTED


def test_T35_who_comes_later_is_told_who_holds_the_lock_since_when_and_in_which_phase(
    site: RealSite, production: Container
) -> None:
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    for words in (("swap", "cand", "--yes"), ("recover",), ("restart", "--yes"), ("stop", "--yes")):
        refused = site.lanectl(*words)
        assert refused.code == ExitCode.BUSY, (words, refused)
        assert all(word in refused.err for word in (f"pid {begun.process.pid}", "since ", "phase READY")), refused
    quiet = site.lanectl("recover", "--if-needed")
    assert quiet.code == ExitCode.OK, "for the timer, somebody at work is no news"
    _stop(begun)
    is_back(site, production)


def test_when_the_holder_and_its_guard_are_killed_the_next_is_told_to_recover(
    site: RealSite, production: Container
) -> None:
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    for pid in (*site.guards(), begun.process.pid):
        os.kill(pid, signal.SIGKILL)
    begun.process.wait()
    refused = site.lanectl("swap", "cand", "--yes")
    assert refused.code == ExitCode.UNFINISHED, refused
    assert "lanectl recover" in refused.err
    assert site.lanectl("status").code == ExitCode.UNFINISHED
    recoveries = [site.begin("recover") for _ in range(OPERATORS)]
    codes = [one.ended().code for one in recoveries]
    assert set(codes) <= {ExitCode.OK, ExitCode.BUSY}, codes
    assert ExitCode.OK in codes
    assert site.until_closed() == "recovered:ready:server"
    is_back(site, production, killed=1)


def test_many_looks_at_once_neither_disturb_a_swap_nor_are_disturbed(site: RealSite, production: Container) -> None:
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "create:server", swaps=2)

    def look(number: int) -> tuple[tuple[str, ...], int, str]:
        words = ("status",) if number % 2 else ("health", "prod")
        done = site.lanectl(*words)
        return words, done.code, done.out + done.err

    with ThreadPoolExecutor(LOOKS) as pool:
        seen = list(pool.map(look, range(LOOKS)))
    assert [one for one in seen if one[1] != ExitCode.OK] == []
    _stop(begun)
    is_back(site, production)


def test_looks_without_end_do_not_keep_anybody_from_the_lock(on_local: RealSite) -> None:
    """A look holds the lock for an instant; who wants it just then waits that out."""
    production = on_local.produce(**INSTANT)
    on_local.lane("cand", **INSTANT)
    swapped: list[int] = []

    def look(_: int) -> int:
        codes = []
        while not swapped:
            codes.append(on_local.lanectl("status").code)
        return len([code for code in codes if code != ExitCode.OK])

    with ThreadPoolExecutor(3) as pool:
        wrong = pool.map(look, range(3))
        until(lambda: on_local.lanectl("swap", "cand", "--yes").code == ExitCode.OK, SOON_S, "a swap while looked at")
        swapped.append(1)
        assert sum(wrong) == 0
    is_back(on_local, production)
