"""Every kind of operation that owes production, each on a fresh world in memory, ready to be run by a mortal life."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lanectl.actions.adopt import adopt
from lanectl.actions.interrupts import Interrupts
from lanectl.actions.progress import Silent
from lanectl.actions.recover import recover
from lanectl.actions.rollback import rollback
from lanectl.actions.start import restart, start
from lanectl.actions.station import Station
from lanectl.actions.stop import stop
from lanectl.actions.swap import SwapRequest, swap
from lanectl.core.owed import Tripped
from lanectl.errors import Dark, EngineError, EngineUnknown, LaneError, Unreachable
from tests.support.engine_cdi import NAMES
from tests.support.fake_engine import FakeEngine, Fault
from tests.support.fake_station import SPEAKS, WELL, FakeSite
from tests.support.fake_world import Program

GB300 = NAMES["gb300"]
MEMORY = {"gpu": "gb300", "stable": "1s", "within": "10s"}
DRAIN = {"drain": {"idle_for": "1s", "deadline": "5s"}}
SAYS = "the engine said no"
ALWAYS = 10**6
Make = Callable[[Path], FakeSite]
Parts = Callable[[FakeSite], dict[str, Any]]


def _nothing(site: FakeSite) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Kind:
    """An operation: how its world is made, how it is run, and what production must be after it.

    `outcome`: how it ends when nobody dies. `current`, `previous`: the lanes that production is and was, by label (""
    none), as long as it commits nothing; `committed`: the two from then on. `faults`: what goes wrong with calls to the
    engine, `parts` of the Station that fail. `remade`: the world takes production's containers, so that they cannot be
    the same ones afterwards. `cure`: makes what is owed able to come back, where it is not before this operation.
    """

    make: Make
    run: Callable[[Station], Any]
    outcome: str
    current: str = "prod"
    previous: str = ""
    committed: tuple[str, str] | None = None
    faults: tuple[Fault, ...] = ()
    parts: Parts = field(default=_nothing)
    remade: bool = False
    cure: Callable[[FakeSite], object] | None = None


def run(kind: Kind, site: FakeSite, engine: FakeEngine) -> None:
    """Run it; how it ends is the world's to show."""
    engine.faults += [replace(fault) for fault in kind.faults]
    try:
        kind.run(site.station("op", engine=engine, **kind.parts(site)))
    except LaneError:
        pass


def _one(root: Path, program: Program = WELL, *, more: Any = None, candidate: Any = None, **lane: Any) -> FakeSite:
    """Production and candidate with one service each; `more`, `candidate`: keys of the two lanes."""
    site = FakeSite(root)
    site.produce(restart="unless-stopped", more=more)
    site.lane("cand", program, more=candidate, **lane)
    return site


def _two(root: Path, candidate: Program = WELL, production: Program = WELL, **lane: Any) -> FakeSite:
    """Production and candidate with a sidecar each and GPU memory to wait for."""
    site = FakeSite(root)
    heavy: dict[str, Any] = {"sidecar": SPEAKS, "devices": [GB300], "memory": MEMORY}
    site.produce(program=replace(production, gpu_mib=2000), **heavy)
    site.lane("cand", replace(candidate, gpu_mib=2000), **heavy, **lane)
    return site


def _alike(root: Path) -> FakeSite:
    """Production and candidate have the same image and the same container name; they differ in their command."""
    site = FakeSite(root)
    site.produce(restart="unless-stopped")
    site.lane("cand", image_of="prod", container_name="prod")
    return site


def _promoted(root: Path) -> FakeSite:
    """The candidate is production, and what was before it is parked."""
    site = _one(root)
    _ends(site, "promoted", keep=True)
    site.lane("third")
    return site


def _alike_promoted(root: Path) -> FakeSite:
    site = _alike(root)
    _ends(site, "promoted", keep=True)
    return site


def _ends(site: FakeSite, outcome: str, **wish: Any) -> None:
    ended = site.swap("cand", **wish)
    assert ended.outcome == outcome, ended


def _breaks(site: FakeSite, lane: str, *, now: bool = False) -> FakeSite:
    """From its next start on, the lane does not come up; `now`: it ends, too."""
    site.becomes(lane, DIES)
    with site.world.changed:
        for container in site.world.containers.values():
            if now and container.running and site.world.program_of(container) is DIES:
                site.world.end(container, 1, by_hand=True)
    return site


def _dark(root: Path) -> FakeSite:
    """A swap's way back gave up: its production does not come up any more. Another lane is parked from before."""
    site = _breaks(_promoted(root), "cand")
    ended = site.swap("third")
    assert isinstance(ended.error, Dark), ended
    return site


def _dark_promoted(root: Path) -> FakeSite:
    """A swap was committed, and what it promoted did not come back."""
    site = _one(root)
    engine = FakeEngine(site.world)

    def measure(**asked: Any) -> Any:
        engine.faults.append(Fault("rename", Unreachable("away"), times=ALWAYS))
        return site.measure(**asked)

    ended = site.swap("cand", station=site.station(engine=engine, measure=measure), keep=True, measure=True)
    assert isinstance(ended.error, Dark), ended
    return _breaks(site, "cand", now=True)


def _is_cured(site: FakeSite) -> FakeSite:
    site.becomes("cand", WELL)
    return site


def _cured(root: Path) -> FakeSite:
    return _is_cured(_dark(root))


def _tripped(root: Path) -> FakeSite:
    """The watchdog killed production and said so."""
    site = _promoted(root)
    site.engine.kill("cand")
    station = site.station()
    said = Tripped(at=site.clock.wall(), reason="counters stood still")
    station.record_production(replace(station.production(), tripped=said))
    return site


def _by_hand(root: Path) -> FakeSite:
    """Production was started by hand and adopted."""
    site = FakeSite(root)
    site.lane("prod")
    site.lane("cand")
    site.by_hand("prod", HostConfig={"NetworkMode": "host"})
    site.clock.sleep(1.0)
    adopt(site.station("adopt"), ["prod"], None)
    return site


def _from_nothing(root: Path) -> FakeSite:
    site = FakeSite(root)
    site.lane("cand")
    return site


def _removed(root: Path) -> FakeSite:
    """Production ended, and somebody removed its container."""
    site = _one(root)
    site.engine.remove("prod")
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


def _swap(lane: str = "cand", **wish: Any) -> Callable[[Station], Any]:
    return lambda station: swap(station, SwapRequest(lane, **wish), Silent(), Interrupts())


def _interrupted(station: Station) -> None:
    """Ctrl-C arrives while the candidate is asked whether it is ready."""
    interrupts = Interrupts()

    class Pressing(Silent):
        def phase(self, phase: str, text: str) -> None:
            if phase == "READY":
                interrupts.asked = signal.SIGINT

    swap(station, SwapRequest("cand"), Pressing(), interrupts)


def _rollback(station: Station) -> Any:
    return rollback(station, Silent(), Interrupts())


def _restart(station: Station) -> Any:
    return restart(station, Silent())


def _start(station: Station) -> Any:
    return start(station, Silent())


def _recover(station: Station) -> Any:
    return recover(station, Silent())


def _raising(part: str) -> Parts:
    """A part of the Station that raises when it is called."""

    def call(*_: Any, **__: Any) -> Any:
        raise LaneError(SAYS)

    return lambda site: {part: call}


class _NoJobs:
    """The Jobs port where none can be started."""

    def start(self, argv: object, *, name: str, keep_fds: object, log_path: str) -> int:
        raise LaneError(SAYS)


def _meanwhile(act: Callable[[FakeSite], object]) -> Parts:
    """Something happens while the candidate is measured."""

    def parts(site: FakeSite) -> dict[str, Any]:
        def measure(**asked: Any) -> Any:
            act(site)
            return site.measure(**asked)

        return {"measure": measure}

    return parts


def _id(site: FakeSite) -> str:
    current = site.station().production().current
    assert current is not None
    return current.services[0].container_id


def _freeze(site: FakeSite) -> None:
    site.engine.start(_id(site))
    site.world.freeze(site.container(_id(site)))


DIES = Program(exits_after_s=0.3, exit_code=1)
HANGS = replace(WELL, hangs=True)
IGNORES_TERM = replace(WELL, term_code=None)
DIES_LATER = replace(WELL, exits_after_s=1.5)
FREES_LATE = replace(WELL, gpu_free_after_s=15.0)

MEASURED = _swap(measure=True)
KEPT = _swap(keep=True)
PROMOTED = ("cand", "prod")
SAME = "same image and name"

WELL_RUN: dict[str, Kind] = {
    "measured": Kind(_one, MEASURED, "measured"),
    "two services": Kind(_two, MEASURED, "measured"),
    "kept": Kind(_one, KEPT, "promoted", committed=PROMOTED),
    "two services, kept": Kind(_two, KEPT, "promoted", committed=PROMOTED),
    "adopted": Kind(_by_hand, _swap(), "proven"),
    "adopted, kept": Kind(_by_hand, KEPT, "promoted", committed=PROMOTED),
    SAME: Kind(_alike, _swap(), "proven"),
    f"{SAME}, kept": Kind(_alike, KEPT, "promoted", committed=PROMOTED),
    "the same lane kept": Kind(_one, _swap("prod", keep=True), "promoted", committed=("prod", "prod")),
    "kept, one before it": Kind(
        _promoted, _swap("third", keep=True), "promoted", "cand", "prod", committed=("third", "cand")
    ),
    "from dark, nothing owed": Kind(_from_nothing, _swap(from_dark=True), "proven", ""),
    "from dark, kept": Kind(_from_nothing, _swap(from_dark=True, keep=True), "promoted", "", committed=("cand", "")),
    "from dark, stopped on purpose": Kind(_stopped, _swap(from_dark=True), "proven"),
    "from dark, stopped on purpose, kept": Kind(
        _stopped, _swap(from_dark=True, keep=True), "promoted", committed=PROMOTED
    ),
    "from dark, production removed": Kind(_removed, _swap(from_dark=True), "proven", remade=True),
    "interrupted": Kind(_one, _interrupted, "interrupted"),
}

FAILING: dict[str, Kind] = {
    "create fails": Kind(_two, _swap(), "refused", faults=(Fault("create", EngineError(SAYS), skip=1),)),
    "create is not answered": Kind(
        _one, _swap(), "refused", faults=(Fault("create", EngineUnknown(SAYS), after=True),)
    ),
    "guard fails": Kind(_one, _swap(), "refused", parts=lambda site: {"jobs": _NoJobs()}),
    "drain fails": Kind(lambda root: _one(root, more=DRAIN), _swap(), "failed:drain", parts=_raising("in_flight")),
    "park fails": Kind(_one, _swap(), "failed:park:server", faults=(Fault("rename", EngineError(SAYS)),)),
    "stop fails": Kind(
        _two, _swap(), "failed:stop:sidecar", faults=(Fault("stop", EngineUnknown(SAYS), after=True, skip=1),)
    ),
    "memory is not freed": Kind(lambda root: _two(root, production=FREES_LATE), _swap(), "failed:free"),
    "start fails": Kind(lambda root: _one(root, Program(start_error=SAYS)), _swap(), "failed:start:server"),
    "candidate dies": Kind(lambda root: _one(root, DIES), _swap(), "failed:ready:server"),
    "candidate hangs": Kind(
        lambda root: _one(root, HANGS, ready={"completion": {"within": "1s"}}), _swap(), "failed:ready:server"
    ),
    "candidate ignores TERM": Kind(lambda root: _one(root, IGNORES_TERM, stop_grace_period="1s"), _swap(), "proven"),
    "two services, candidate dies": Kind(lambda root: _two(root, DIES), _swap(), "failed:ready:server"),
    "candidate dies later": Kind(
        lambda root: _one(root, DIES_LATER, candidate={"stable_for": "3s"}), _swap(), "failed:stable"
    ),
    "measurement fails": Kind(_one, MEASURED, "failed:measure", parts=_raising("measure")),
    "commit fails": Kind(_one, KEPT, "failed:commit", faults=(Fault("keep_image", EngineError(SAYS), skip=1),)),
    "the way back stumbles": Kind(_one, _swap(), "proven", faults=(Fault("start", EngineError(SAYS), skip=1),)),
    "remove fails": Kind(_one, _swap(), "proven", faults=(Fault("remove", EngineUnknown(SAYS), after=True),)),
}

MEANWHILE: dict[str, Kind] = {
    "removed while parked": Kind(
        _one, MEASURED, "measured", parts=_meanwhile(lambda site: site.engine.remove(_id(site))), remade=True
    ),
    f"removed while parked, {SAME}": Kind(
        _alike, MEASURED, "measured", parts=_meanwhile(lambda site: site.engine.remove(_id(site))), remade=True
    ),
    "started and paused while parked": Kind(_one, MEASURED, "measured", parts=_meanwhile(_freeze)),
    "the engine restarts": Kind(
        _one, MEASURED, "failed:measure", parts=_meanwhile(lambda site: site.world.restart_machine())
    ),
}

OTHERS: dict[str, Kind] = {
    "rollback": Kind(_promoted, _rollback, "promoted", "cand", "prod", committed=("prod", "cand")),
    f"rollback, {SAME}": Kind(_alike_promoted, _rollback, "promoted", "cand", "prod", committed=("prod", "cand")),
    "rollback fails": Kind(lambda root: _breaks(_promoted(root), "prod"), _rollback, "failed:wake", "cand", "prod"),
    f"rollback fails, {SAME}": Kind(
        lambda root: _breaks(_alike_promoted(root), "prod"), _rollback, "failed:wake", "cand", "prod"
    ),
    "rollback from DARK": Kind(
        _dark, _rollback, "promoted", "cand", "prod", committed=("prod", "cand"), cure=_is_cured
    ),
    "rollback from DARK after a commit": Kind(
        _dark_promoted, _rollback, "promoted", "cand", "prod", committed=("prod", "cand"), cure=_is_cured
    ),
    "rollback from a trip": Kind(_tripped, _rollback, "promoted", "cand", "prod", committed=("prod", "cand")),
    "rollback from a trip fails": Kind(
        lambda root: _breaks(_tripped(root), "prod"), _rollback, "failed:wake", "cand", "prod"
    ),
    "restart": Kind(_one, _restart, "started"),
    "two services, restart": Kind(_two, _restart, "started"),
    "restart from a trip": Kind(_tripped, _restart, "started", "cand", "prod"),
    "restart from DARK": Kind(_cured, _restart, "started", "cand", "prod"),
    "start": Kind(_stopped, _start, "started"),
    "recover after a reboot": Kind(_rebooted, _recover, "started"),
    "recover from DARK": Kind(_cured, _recover, "recovered:prove", "cand", "prod"),
    "recover from DARK after a commit": Kind(
        lambda root: _is_cured(_dark_promoted(root)), _recover, "promoted", "cand", "prod"
    ),
}

KINDS: dict[str, Kind] = {**WELL_RUN, **FAILING, **MEANWHILE, **OTHERS}
