"""Whole swaps in memory on GPUs that do not give their memory back as they should: nothing boots on top of it, and the
way back waits for it and names who holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lanectl.core.container import Container
from lanectl.core.journal import Kind
from lanectl.errors import Dark, ExitCode
from lanectl.ports import GpuProcess, GpuReading
from tests.support.aftermath import is_back
from tests.support.engine_cdi import NAMES
from tests.support.fake_station import IDLE_MIB, WELL, FakeSite
from tests.support.hooked_engine import HookedEngine
from tests.support.station import Ended

GB300 = NAMES["gb300"]
LANE_MIB = 200_000
WORKER = GpuProcess(4711, "VLLM::Worker_TP0", LANE_MIB)
WITHIN_S = 300.0
STABLE_S = 2.0
MEMORY = {"gpu": "gb300", "stable": f"{STABLE_S:g}s", "within": f"{WITHIN_S:g}s"}


@dataclass
class SlowGpus:
    """One GPU. While a lane's container runs, the lane's memory is used; `kept_s` after it ended, still `kept_mib` by
    `holders`. `unreadable`: this GPU shares the host's memory, and its own reads as not available."""

    site: FakeSite
    kept_s: float = 0.0
    kept_mib: int = LANE_MIB
    holders: tuple[GpuProcess, ...] = ()
    unreadable: bool = False
    stopped_at: float = field(default=0.0, init=False)

    def uuids(self) -> tuple[str, ...]:
        return (GB300.partition("=")[2],)

    def read(self, uuid: str) -> GpuReading:
        now = self.site.clock.monotonic()
        containers = self.site.containers().values()
        running = tuple(GpuProcess(one.pid or 0, one.name, LANE_MIB) for one in containers if one.running)
        if running:
            return self._reading(uuid, LANE_MIB, running)
        if now - self.stopped_at < self.kept_s:
            return self._reading(uuid, self.kept_mib, self.holders)
        return self._reading(uuid, 0, ())

    def stopped(self, ref: str) -> None:
        self.stopped_at = self.site.clock.monotonic()

    def _reading(self, uuid: str, used_mib: int, holders: tuple[GpuProcess, ...]) -> GpuReading:
        return GpuReading(uuid, None if self.unreadable else IDLE_MIB + used_mib, holders)


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce(devices=[GB300], memory=MEMORY)
    site.lane("cand", WELL, devices=[GB300], memory=MEMORY)
    return site


@pytest.fixture
def production(site: FakeSite) -> Container:
    return site.seen("prod")


def _swap(site: FakeSite, gpus: SlowGpus) -> Ended:
    engine = HookedEngine(site.station().engine)

    def production_stopped(ref: str) -> None:
        gpus.stopped(ref)
        engine.after("stop", gpus.stopped)  # the candidate's

    engine.after("stop", production_stopped)
    return site.swap("cand", station=site.station("swap", "cand", gpus=gpus, engine=engine))


def _seconds(site: FakeSite, step: str) -> float:
    begin, done = site.record(Kind.BEGIN, step), site.record(Kind.DONE, step)
    assert begin is not None
    assert done is not None
    return done.mono - begin.mono


def test_T17_memory_that_comes_back_minutes_after_the_exit_is_waited_for(site: FakeSite, production: Container) -> None:
    gpus = SlowGpus(site, kept_s=120.0)
    ended = _swap(site, gpus)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "proven"), ended.words
    assert _seconds(site, "free") >= 120.0 + STABLE_S
    assert _seconds(site, "released") >= 120.0 + STABLE_S, "production is not booted on top of it either"
    is_back(site, production)


@pytest.mark.parametrize("kept_mib", [LANE_MIB, 0])
def test_T15_workers_that_keep_the_gpu_are_named_and_nothing_boots_beside_them(
    site: FakeSite, production: Container, kept_mib: int
) -> None:
    """With memory still used, and with a process that holds next to none of it: both can come alive again."""
    gpus = SlowGpus(site, kept_s=1e9, kept_mib=kept_mib, holders=(WORKER,))
    ended = _swap(site, gpus)
    assert ended.exit_code is ExitCode.DARK
    assert WORKER.name in ended.words
    assert str(WORKER.pid) in ended.words
    assert site.record(Kind.BEGIN, "start:server") is None, "the candidate was never booted"
    assert not [one for one in site.containers().values() if one.running]
    with pytest.raises(Dark, match=WORKER.name):
        site.recover(site.station("recover", gpus=gpus))
    gpus.kept_s = 0.0
    assert site.recover(site.station("recover", gpus=gpus)).swaps[0][1] == "recovered:free"
    is_back(site, production)


def test_T15_memory_that_nobody_holds_is_stranded_and_nothing_boots_on_top_of_it(
    site: FakeSite, production: Container
) -> None:
    gpus = SlowGpus(site, kept_s=1e9)
    ended = _swap(site, gpus)
    assert ended.exit_code is ExitCode.DARK
    assert "do not reset the GPU" in ended.words
    assert site.record(Kind.BEGIN, "start:server") is None
    gpus.kept_s = 0.0
    site.recover(site.station("recover", gpus=gpus))
    is_back(site, production)


def test_T18_where_memory_reads_na_the_processes_on_the_gpu_decide(site: FakeSite, production: Container) -> None:
    gpus = SlowGpus(site, kept_s=60.0, holders=(WORKER,), unreadable=True)
    ended = _swap(site, gpus)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "proven"), ended.words
    assert _seconds(site, "free") >= 60.0
    is_back(site, production)
