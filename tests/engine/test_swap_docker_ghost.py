"""T21 on a real engine: a container that was killed and for which no exit ever comes, because what runs it hangs.

The container's shim (the process between the engine and the container) is frozen: so is every stop, kill and removal.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.core.container import Container
from lanectl.core.journal import Kind
from lanectl.errors import ExitCode
from tests.support.aftermath import is_back
from tests.support.fault_site import shorten_deadlines
from tests.support.hooked_engine import HookedEngine
from tests.support.proving import INSTANT
from tests.support.station import Ended, RealSite

SHIM = b"containerd-shim"


@pytest.fixture
def production(on_docker: RealSite, monkeypatch: pytest.MonkeyPatch) -> Container:
    made = on_docker.produce(**INSTANT)
    on_docker.lane("cand", **INSTANT)
    shorten_deadlines(monkeypatch)
    return made


class Frozen:
    """Shims that were frozen; all run again at the end."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    def freeze(self, container: str) -> None:
        (shim,) = [pid for pid in _pids() if _is_shim_of(pid, container)]
        os.kill(shim, signal.SIGSTOP)
        self.pids.append(shim)

    def thaw(self) -> None:
        while self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids.pop(), signal.SIGCONT)


@pytest.fixture
def frozen() -> Iterator[Frozen]:
    frozen = Frozen()
    yield frozen
    frozen.thaw()


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _is_shim_of(pid: int, container: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return SHIM in words[0] and container.encode() in words


def _swap(site: RealSite, engine: HookedEngine) -> Ended:
    return site.swap("cand", station=site.station("swap", "cand", engine=engine))


def test_T21_a_candidate_that_will_not_die_has_nothing_started_beside_it(
    on_docker: RealSite, production: Container, frozen: Frozen
) -> None:
    site = on_docker
    engine = HookedEngine(site.station().engine)
    engine.after("start", frozen.freeze)
    ended = _swap(site, engine)
    assert ended.exit_code is ExitCode.DARK, ended
    # Docker holds the container's lock while it waits for its shim: as a rule not even a look is answered.
    assert "not known to have ended" in ended.words or "no answer from" in ended.words, ended.words
    assert not site.seen(production.id).running
    assert site.record(Kind.STUCK) is not None
    frozen.thaw()
    assert site.recover().swaps
    is_back(site, production)


def test_T21_when_production_will_not_die_no_candidate_boots_and_it_is_loud_until_it_is_proven_again(
    on_docker: RealSite, production: Container, frozen: Frozen
) -> None:
    site = on_docker
    engine = HookedEngine(site.station().engine)
    engine.after("rename", lambda ref: frozen.freeze(production.id))
    ended = _swap(site, engine)
    assert ended.exit_code in (ExitCode.CANDIDATE, ExitCode.DARK), ended
    assert site.record(Kind.BEGIN, "start:server") is None, "no candidate was booted"
    failed = site.record(Kind.FAILED, "stop:server")
    assert failed is not None
    assert "not known to have ended" in failed.data["message"]
    frozen.thaw()
    if ended.exit_code is ExitCode.DARK:
        assert site.recover().swaps
    is_back(site, production)
