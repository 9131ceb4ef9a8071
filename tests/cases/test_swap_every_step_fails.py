"""Each step of a swap fails in turn, in memory: production is back, proven and alone, and the report says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanectl.actions.station import Station
from lanectl.core.container import Container, CreateArgs
from lanectl.core.journal import Kind
from lanectl.errors import EngineError, EngineUnknown, ExitCode, LaneError, Unreachable
from lanectl.ports import GpuReading
from tests.support.aftermath import is_back, records_are_whole, untouched
from tests.support.engine_cdi import NAMES
from tests.support.fake_engine import FakeEngine, Fault
from tests.support.fake_station import SPEAKS, WELL, FakeSite, WorldGpus
from tests.support.fake_world import Line, Program

SAYS = "the engine said no"
GB300 = NAMES["gb300"]


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    """A site with everything a lane can ask for: two services each, a drain, GPU memory, a stable time."""
    site = FakeSite(tmp_path)
    memory = {"gpu": "gb300", "stable": "1s", "within": "10s"}
    more = {"drain": {"idle_for": "1s", "deadline": "5s"}}
    whole = replace(WELL, gpu_mib=1000)
    site.produce(program=whole, sidecar=SPEAKS, more=more, devices=[GB300], memory=memory)
    site.lane("cand", whole, sidecar=SPEAKS, more={"stable_for": "3s"}, devices=[GB300], memory=memory)
    return site


def both(site: FakeSite) -> tuple[Container, Container]:
    """Return production's containers."""
    return site.seen("prod-sidecar"), site.seen("prod")


def _parts(site: FakeSite, *faults: Fault, **parts: Any) -> Station:
    engine = FakeEngine(site.world)
    engine.faults += faults
    return site.station("swap", "cand", engine=engine, **parts)


def _raises(error: Exception) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


class _GpusOnceStuck(WorldGpus):
    """GPUs whose memory stays in use through the first wait and comes back afterwards."""

    def __init__(self, site: FakeSite, for_s: float) -> None:
        super().__init__(site.world)
        self._clock = site.clock
        self._until = site.clock.monotonic() + for_s

    def read(self, uuid: str) -> GpuReading:
        return (
            replace(super().read(uuid), used_mib=50_000)
            if self._clock.monotonic() < self._until
            else super().read(uuid)
        )


def _refuses_to_start(site: FakeSite) -> Station:
    site.becomes("cand", Program(start_error=SAYS))
    return _parts(site)


def _dies(site: FakeSite, after_s: float, code: int, listens_after_s: float = 60.0) -> Station:
    lines = (Line(0.01, b"INFO loading\n"), Line(after_s, b"CUDA error: " + SAYS.encode() + b"\n"))
    site.becomes(
        "cand",
        replace(WELL, lines=lines, listens_after_s=listens_after_s, exits_after_s=after_s + 0.05, exit_code=code),
    )
    return _parts(site)


STEPS: dict[str, Callable[[FakeSite], Station]] = {
    "drain": lambda site: _parts(site, in_flight=_raises(LaneError(SAYS))),
    "park:server": lambda site: _parts(site, Fault("set_restart", EngineError(SAYS))),
    "park:sidecar": lambda site: _parts(site, Fault("rename", EngineError(SAYS), skip=1)),
    "stop:server": lambda site: _parts(site, Fault("stop", EngineUnknown(SAYS))),
    "stop:sidecar": lambda site: _parts(site, Fault("stop", EngineUnknown(SAYS), after=True, skip=1)),
    "free": lambda site: _parts(site, gpus=_GpusOnceStuck(site, 15.0)),
    "start:sidecar": lambda site: _parts(site, Fault("start", EngineError(SAYS))),
    "start:server": _refuses_to_start,
    "ready:sidecar": lambda site: (site.becomes("cand-sidecar", Program(exits_after_s=1.0)), _parts(site))[1],
    "ready:server": lambda site: _dies(site, 0.5, 1),
    "stable": lambda site: _dies(site, 1.5, 0, listens_after_s=0.1),
    "measure": lambda site: _parts(site, measure=_raises(LaneError(SAYS))),
}


@pytest.mark.parametrize("step", STEPS)
def test_production_is_back_when_this_step_fails(site: FakeSite, step: str) -> None:
    production = both(site)
    ended = site.swap("cand", station=STEPS[step](site), measure=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.CANDIDATE, f"failed:{step}")
    is_back(site, *production)
    report = ended.report
    assert report is not None
    assert report.failure is not None
    assert report.failure.step == step
    assert report.restored == "prod"
    failed = site.record(Kind.FAILED, step)
    assert failed is not None
    assert failed.data["message"] == report.failure.message


@pytest.mark.parametrize("fault", ["keep_image", "inspect"])
def test_production_is_back_when_the_commit_fails(site: FakeSite, fault: str) -> None:
    production = both(site)
    engine = FakeEngine(site.world)
    station = site.station(engine=engine)

    def measure(**asked: Any) -> Any:
        # The first two inspects after a measurement look whether both services stayed up.
        engine.faults.append(Fault(fault, EngineError(SAYS), skip=2 if fault == "inspect" else 0))
        return site.measure(**asked)

    ended = site.swap("cand", station=replace(station, measure=measure), keep=True, measure=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.CANDIDATE, "failed:commit")
    is_back(site, *production)
    assert site.station().production().previous is None


UNTOUCHED: dict[str, Callable[[FakeSite], Station]] = {
    "create:sidecar": lambda site: _parts(site, Fault("create", EngineError(SAYS))),
    "create:server": lambda site: _parts(site, Fault("create", EngineError(SAYS), skip=1)),
    "create:server, its answer lost": lambda site: _parts(
        site, Fault("create", EngineUnknown(SAYS), after=True, skip=1)
    ),
    "guard": lambda site: _parts(site, jobs=_NoJobs()),
    "the image cannot be kept": lambda site: _parts(site, Fault("keep_image", EngineError(SAYS))),
    "the engine cannot be reached": lambda site: _parts(site, *_away()),
}


def _away() -> list[Fault]:
    """No call reaches the engine any more."""
    calls = ("info", "containers", "inspect", "remove", "stop", "image")
    return [Fault(call, Unreachable(SAYS), times=10**6) for call in calls]


class _GoesAway(FakeEngine):
    """An engine that is away from its first create on; the container is made, the answer lost."""

    def create(self, args: CreateArgs) -> str:
        self.faults += _away()
        super().create(args)
        raise EngineUnknown(SAYS)


def test_what_an_engine_that_went_away_has_made_is_left_to_recover_and_is_no_outage(site: FakeSite) -> None:
    production = both(site)
    began = site.clock.monotonic()
    ended = site.swap("cand", station=site.station(engine=_GoesAway(site.world)))
    assert ended.exit_code is ExitCode.UNFINISHED
    assert "production was not touched" in ended.words
    assert "lanectl recover" in ended.words
    assert site.clock.monotonic() - began < 10.0, "production serves: there is nothing to wait for"
    assert site.swap("cand").exit_code is ExitCode.UNFINISHED
    assert site.recover().swaps[0][1] == "refused"
    untouched(site, *production)


class _NoJobs:
    """The Jobs port where none can be started."""

    def start(self, argv: object, *, name: str, keep_fds: object, log_path: str) -> int:
        raise LaneError(SAYS)


@pytest.mark.parametrize("what", UNTOUCHED)
def test_nothing_is_touched_when_this_fails_before_production_is_owed(site: FakeSite, what: str) -> None:
    production = both(site)
    ended = site.swap("cand", station=UNTOUCHED[what](site))
    assert (ended.exit_code, ended.report) == (ExitCode.REFUSED, None)
    assert SAYS in ended.words
    untouched(site, *production)
    closed = site.record(Kind.CLOSED)
    assert closed is not None
    assert closed.data["outcome"] == "refused"


def test_a_fault_of_lanectl_itself_restores_production_first_and_is_raised_then(site: FakeSite) -> None:
    production = both(site)
    with pytest.raises(ZeroDivisionError):
        site.swap("cand", station=_parts(site, measure=_raises(ZeroDivisionError(SAYS))), measure=True)
    is_back(site, *production)


def test_two_failures_are_told_as_the_first_one(site: FakeSite) -> None:
    """The candidate dies, and then does not go away at once: what a person must read is why it died."""
    production = both(site)
    station = _dies(site, 0.5, 1)
    station = replace(station, engine=_with_faults(site, Fault("remove", EngineUnknown("still there"))))
    ended = site.swap("cand", station=station)
    assert (ended.exit_code, ended.outcome) == (ExitCode.CANDIDATE, "failed:ready:server")
    assert SAYS in ended.words
    is_back(site, *production)


def _with_faults(site: FakeSite, *faults: Fault) -> FakeEngine:
    engine = FakeEngine(site.world)
    engine.faults += faults
    return engine


def test_the_report_and_the_journal_keep_the_candidates_last_lines_and_its_log(site: FakeSite) -> None:
    ended = site.swap("cand", station=_dies(site, 0.5, 1))
    assert ended.report is not None
    assert f"CUDA error: {SAYS}" in ended.report.tail
    logs = Path(ended.report.folder) / "logs"
    assert f"CUDA error: {SAYS}\n" in (logs / "server.log").read_text()
    assert (logs / "sidecar.log").read_text() == "serving\n"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("call", ["start", "rename", "remove", "stop", "containers"])
def test_a_way_back_that_stumbles_is_walked_again(site: FakeSite, call: str, times: int) -> None:
    production = both(site)
    engine = FakeEngine(site.world)

    def measure(**asked: Any) -> Any:
        engine.faults.append(Fault(call, EngineError(SAYS), times=times))
        return site.measure(**asked)

    ended = site.swap("cand", station=site.station(engine=engine, measure=measure), measure=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "measured")
    is_back(site, *production)


def test_an_engine_that_is_away_on_the_way_back_is_waited_for(site: FakeSite) -> None:
    production = both(site)
    engine = FakeEngine(site.world)

    def measure(**asked: Any) -> Any:
        engine.faults.append(Fault("containers", Unreachable("the daemon restarts"), times=12))
        return site.measure(**asked)

    ended = site.swap("cand", station=site.station(engine=engine, measure=measure), measure=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "measured")
    is_back(site, *production)
    records_are_whole(site)


def test_a_candidate_that_ends_while_it_is_measured_did_not_stay_up(site: FakeSite) -> None:
    production = both(site)

    def measure(**asked: Any) -> Any:
        with site.world.changed:
            site.world.end(site.container("cand.candidate." + site.station().state.swap_ids()[-1]), 0)
        return site._measure(**asked)

    site.measure = measure
    ended = site.swap("cand", measure=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.CANDIDATE, "failed:measure")
    assert "server did not stay up: it is exited" in ended.words
    is_back(site, *production)
