"""Waiting for a GPU: readings as a card gives them, time as the test wills."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from lanectl.actions.release import UNKNOWN_FOR_S, ReleaseReport, wait_released
from lanectl.core.lane import GpuMemory
from lanectl.errors import ExitCode, Interrupted, LaneError
from lanectl.ports import GpuReading
from lanectl.probes.gpu import NoGpus
from tests.support.fake_gpus import UNKNOWN, UUID, FakeGpus, reading
from tests.support.fake_world import FakeClock

MEMORY = GpuMemory("gb300", UUID)
IDLE_MIB = 22


class Wait:
    def __init__(self, readings: Iterable[GpuReading], memory: GpuMemory = MEMORY) -> None:
        self.gpus = FakeGpus(readings)
        self.clock = FakeClock()
        self.memory = memory
        self.told: list[str] = []

    def run(self) -> ReleaseReport:
        return wait_released(
            gpus=self.gpus,
            clock=self.clock,
            memory=self.memory,
            idle_mib=IDLE_MIB,
            check=lambda: None,
            progress=self.told.append,
        )


def test_memory_that_comes_back_is_released_after_the_stable_time() -> None:
    wait = Wait([reading(242000, 4711)] * 3 + [reading(IDLE_MIB)])
    report = wait.run()
    assert (report.known, report.basis, report.used_mib) == (True, "memory", IDLE_MIB)
    assert report.seconds >= MEMORY.stable_s
    assert "VLLM::Worker (pid 4711)" in wait.told[0]


def test_T15_workers_that_outlive_their_container_are_named() -> None:
    with pytest.raises(LaneError) as caught:
        Wait([reading(242000, 4711, 4712)]).run()
    assert caught.value.exit_code == ExitCode.CANDIDATE
    assert "4711" in caught.value.message
    assert "4712" in caught.value.message
    assert "242000 MiB" in caught.value.message
    assert caught.value.hint


def test_T15_stranded_memory_without_an_owner_is_an_error_too() -> None:
    with pytest.raises(LaneError) as caught:
        Wait([reading(7701)]).run()
    assert "7701 MiB" in caught.value.message


def test_T17_memory_is_released_only_once_it_stands_still() -> None:
    sinking = [reading(1000 - step * 10) for step in range(95)]  # 100 MiB a second, all below the floor
    report = Wait([*sinking, reading(50)]).run()
    assert report.seconds >= 9.0 + MEMORY.stable_s - 1.0


def test_T18_memory_that_reads_na_falls_back_to_the_processes() -> None:
    report = Wait([reading(None, 4711), reading(None)]).run()
    assert (report.known, report.basis, report.used_mib) == (True, "processes", None)
    with pytest.raises(LaneError):
        Wait([reading(None, 4711)]).run()


def test_T18_nothing_readable_is_reported_as_unknown_never_as_free() -> None:
    report = Wait([UNKNOWN]).run()
    assert (report.known, report.used_mib) == (False, None)
    assert report.seconds >= UNKNOWN_FOR_S
    assert "N/A" in report.detail


def test_a_few_readings_that_fail_are_got_over() -> None:
    assert Wait([UNKNOWN] * 5 + [reading(IDLE_MIB)]).run().known


def test_a_machine_without_readable_gpus_is_not_waited_for() -> None:
    clock = FakeClock()
    report = wait_released(
        gpus=NoGpus(), clock=clock, memory=MEMORY, idle_mib=0, check=lambda: None, progress=lambda text: None
    )
    assert (report.known, clock.monotonic()) == (False, 0.0)


def test_an_interrupt_ends_the_wait() -> None:
    def check() -> None:
        raise Interrupted("Ctrl-C")

    with pytest.raises(Interrupted):
        wait_released(
            gpus=FakeGpus([reading(9000)]),
            clock=FakeClock(),
            memory=MEMORY,
            idle_mib=0,
            check=check,
            progress=lambda text: None,
        )
