"""Every kind of operation that owes production, each on a fresh world in memory, ready to be run by a mortal life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lanectl.actions.interrupts import Interrupts
from lanectl.actions.progress import Silent
from lanectl.actions.recover import recover
from lanectl.actions.rollback import rollback
from lanectl.actions.start import restart, start
from lanectl.actions.station import Station
from lanectl.actions.stop import stop
from lanectl.actions.swap import SwapRequest, swap
from lanectl.errors import LaneError
from tests.support.engine_cdi import NAMES
from tests.support.fake_station import SPEAKS, WELL, FakeSite
from tests.support.fake_world import Program

GB300 = NAMES["gb300"]
MEMORY = {"gpu": "gb300", "stable": "1s", "within": "10s"}
Run = Callable[[Station], Any]


@dataclass(frozen=True)
class Kind:
    """An operation: how its world is made, and how it is run."""

    make: Callable[[Path], FakeSite]
    run: Run


def _one(root: Path, candidate: Program = WELL, **lane: Any) -> FakeSite:
    """Production and candidate with one service each."""
    site = FakeSite(root)
    site.produce(restart="unless-stopped")
    site.lane("cand", candidate, **lane)
    return site


def _two(root: Path, candidate: Program = WELL) -> FakeSite:
    """Production and candidate with a sidecar each and GPU memory to wait for."""
    site = FakeSite(root)
    heavy = {"sidecar": SPEAKS, "devices": [GB300], "memory": MEMORY}
    site.produce(program=replace(WELL, gpu_mib=1000), **heavy)
    site.lane("cand", replace(candidate, gpu_mib=1000), **heavy)
    return site


def _promoted(root: Path) -> FakeSite:
    site = _one(root)
    ended = site.swap("cand", keep=True)
    assert ended.outcome == "promoted", ended
    return site


def _from_nothing(root: Path) -> FakeSite:
    site = FakeSite(root)
    site.lane("cand")
    return site


def _stopped(root: Path) -> FakeSite:
    site = _one(root)
    stop(site.station("stop"), Silent())
    return site


def _rebooted(root: Path) -> FakeSite:
    site = FakeSite(root)
    site.produce()
    site.world.restart_machine()
    return site


def _swap(**wish: Any) -> Run:
    def run(station: Station) -> None:
        swap(station, SwapRequest("cand", **wish), Silent(), Interrupts())

    return run


def _interrupted(station: Station) -> None:
    """Ctrl-C arrives while the candidate is asked whether it is ready."""
    import signal

    interrupts = Interrupts()

    class Pressing(Silent):
        def phase(self, phase: str, text: str) -> None:
            if phase == "READY":
                interrupts.asked = signal.SIGINT

    swap(station, SwapRequest("cand"), Pressing(), interrupts)


DIES = Program(exits_after_s=0.3, exit_code=1)
HANGS = replace(WELL, hangs=True)
IGNORES_TERM = replace(WELL, term_code=None)

KINDS: dict[str, Kind] = {
    "measured": Kind(_one, _swap(measure=True)),
    "two services": Kind(_two, _swap(measure=True)),
    "candidate dies": Kind(lambda root: _one(root, DIES), _swap()),
    "candidate hangs": Kind(lambda root: _one(root, HANGS, ready={"completion": {"within": "1s"}}), _swap()),
    "candidate ignores TERM": Kind(lambda root: _one(root, IGNORES_TERM, stop_grace_period="1s"), _swap()),
    "two services, candidate dies": Kind(lambda root: _two(root, DIES), _swap()),
    "kept": Kind(_one, _swap(keep=True)),
    "two services, kept": Kind(_two, _swap(keep=True)),
    "from dark, nothing owed": Kind(_from_nothing, _swap(from_dark=True)),
    "from dark, kept": Kind(_from_nothing, _swap(from_dark=True, keep=True)),
    "interrupted": Kind(_one, _interrupted),
    "rollback": Kind(_promoted, lambda station: rollback(station, Silent(), Interrupts())),
    "restart": Kind(_one, lambda station: restart(station, Silent())),
    "start": Kind(_stopped, lambda station: start(station, Silent())),
    "recover after a reboot": Kind(_rebooted, lambda station: recover(station, Silent())),
}


def run(kind: Kind, station: Station) -> None:
    """Run it; how it ends is the world's to show."""
    try:
        kind.run(station)
    except LaneError:
        pass
