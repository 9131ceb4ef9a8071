"""Production is on its way back, and somebody wants it to stop: a signal, a closed terminal. Real processes."""

from __future__ import annotations

import os
import signal

import pytest

from lanectl.core.container import Container
from lanectl.core.journal import Kind
from lanectl.errors import ExitCode
from tests.support.aftermath import is_back
from tests.support.poll import until
from tests.support.proving import FAILS
from tests.support.station import SOON_S, RealSite
from tests.support.terminal import Terminal

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def production(site: RealSite) -> Container:
    """Production that takes long enough to come back for somebody to lose patience."""
    made = site.produce(faults="boot-delay=2")
    site.lane("bad", **FAILS)
    return made


def _open(site: RealSite) -> None:
    """Leave a swap behind that died with its guard while production was down."""
    site.lane("hangs", faults="boot-delay=60", ready={"timeout": "2m"})
    begun = site.begin("swap", "hangs", "--yes")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    for pid in (*site.guards(), begun.process.pid):
        os.kill(pid, signal.SIGKILL)
    begun.process.wait()


def _coming_back(site: RealSite) -> bool:
    return site.record(Kind.BEGIN, "prove") is not None


@pytest.mark.parametrize("number", SIGNALS)
def test_a_swaps_way_back_is_not_cut_short(site: RealSite, production: Container, number: signal.Signals) -> None:
    begun = site.begin("swap", "bad", "--yes")
    site.until_record(Kind.BEGIN, "prove", swaps=2)
    for _ in range(2):
        begun.process.send_signal(number)
    done = begun.ended()
    assert done.code == ExitCode.CANDIDATE, done
    assert site.until_closed() == "failed:ready:server"
    is_back(site, production)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_restart_is_not_cut_short(site: RealSite, production: Container, number: signal.Signals) -> None:
    begun = site.begin("restart", "--yes")
    site.until_record(Kind.BEGIN, "prove", swaps=2)
    begun.process.send_signal(number)
    done = begun.ended()
    assert done.code == ExitCode.OK, done
    assert "this cannot be cut short" in done.out
    assert site.until_closed() == "started"
    is_back(site, production)


def test_a_recovery_goes_on_when_its_terminal_is_closed(site: RealSite, production: Container) -> None:
    _open(site)
    with Terminal(site.root, "recover") as terminal:
        until(lambda: _coming_back(site), SOON_S, "production is being started")
        terminal.close()
        assert terminal.ended() == ExitCode.OK
    assert site.until_closed() == "recovered:ready:server"
    is_back(site, production, killed=1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, ExitCode.UNFINISHED), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_recovery_that_is_ended_is_finished_by_the_next_one(
    site: RealSite, production: Container, number: signal.Signals, code: int
) -> None:
    _open(site)
    begun = site.begin("recover")
    until(lambda: _coming_back(site), SOON_S, "production is being started")
    begun.process.send_signal(number)
    done = begun.ended()
    assert done.code == code, done
    assert site.lanectl("recover").code == ExitCode.OK
    assert site.until_closed() == "recovered:ready:server"
    is_back(site, production, killed=2)
