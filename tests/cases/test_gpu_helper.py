"""The GPU probe's real helper process, over a driver that is well, says N/A, hangs, crashes or has lost its card."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lanectl.ports import GpuProcess, GpuReading
from lanectl.probes.gpu import HELPER, NvmlGpus
from tests.support.fake_gpus import UUID
from tests.support.poll import until

FAKE_NVML = Path(__file__).parents[1] / "support" / "fake_nvml"
PATIENT_S = 20.0  # a deadline that nothing here should come near
READ_WITHIN_S = 0.5  # a deadline that a hanging driver must run into

Machine = Callable[..., NvmlGpus]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "nvml.json"


@pytest.fixture
def machine(state: Path) -> Iterator[Machine]:
    """A machine whose driver does what the test says; its probe."""
    made: list[NvmlGpus] = []

    def make(read_within_s: float = PATIENT_S, argv: tuple[str, ...] = HELPER, **driver: Any) -> NvmlGpus:
        state.write_text(json.dumps({"used_mib": 22, "pids": [], **driver}))
        env = {**os.environ, "PYTHONPATH": str(FAKE_NVML), "FAKE_NVML": str(state)}
        gpus = NvmlGpus(argv, env=env, read_within_s=read_within_s, start_within_s=PATIENT_S)
        made.append(gpus)
        return gpus

    yield make
    for gpus in made:
        gpus.close()


def calls(state: Path) -> list[str]:
    return Path(f"{state}.calls").read_text().split()


def test_a_card_that_is_well(machine: Machine) -> None:
    gpus = machine(used_mib=242000, pids=[os.getpid()])
    assert gpus.uuids() == (UUID,)
    name = Path("/proc/self/comm").read_text().strip()
    assert gpus.read(UUID) == GpuReading(UUID, 242000, (GpuProcess(os.getpid(), name, None),), None)


def test_one_helper_answers_again_and_again(machine: Machine, state: Path) -> None:
    gpus = machine()
    assert gpus.read(UUID) == gpus.read(UUID) == GpuReading(UUID, 22, (), None)
    assert calls(state).count("nvmlInit") == 1


def test_T18_memory_that_reads_na_is_none_never_0(machine: Machine) -> None:
    assert machine(used_mib=None).read(UUID) == GpuReading(UUID, None, (), None)
    assert machine(used_mib=2**44 // 2**20 - 1).read(UUID).used_mib is None  # "not available" as a number: all ones


def test_a_list_of_processes_that_cannot_be_read_is_none_never_empty(machine: Machine) -> None:
    assert machine(pids=None).read(UUID) == GpuReading(UUID, 22, None, None)


def test_a_card_that_is_not_there_is_an_error_and_no_reason_to_stop(machine: Machine) -> None:
    gpus = machine()
    assert gpus.read("GPU-0").error
    assert gpus.read(UUID).error is None


def test_a_driver_that_hangs_costs_one_deadline_and_is_never_asked_again(machine: Machine, state: Path) -> None:
    gpus = machine(READ_WITHIN_S)
    assert gpus.read(UUID).error is None
    state.write_text(json.dumps({"used_mib": 22, "pids": [], "hang": "nvmlDeviceGetMemoryInfo"}))
    hung = gpus.read(UUID)
    assert (hung.used_mib, hung.processes) == (None, None)
    assert "no answer" in str(hung.error)
    asked = calls(state)
    state.write_text(json.dumps({"used_mib": 22, "pids": []}))
    assert gpus.read(UUID) == hung
    assert gpus.uuids() is None
    assert calls(state) == asked


@pytest.mark.parametrize("error", ["NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_UNKNOWN"])
def test_a_driver_in_trouble_is_never_asked_again(machine: Machine, state: Path, error: str) -> None:
    gpus = machine(fail={"nvmlDeviceGetMemoryInfo": error})
    assert gpus.read(UUID).error
    asked = calls(state)
    assert gpus.read(UUID).error
    assert gpus.uuids() is None
    assert calls(state) == asked


def test_an_xid_error_of_the_card_is_the_last_thing_asked(machine: Machine, state: Path) -> None:
    gpus = machine()
    assert gpus.read(UUID).error is None
    state.write_text(json.dumps({"used_mib": 22, "pids": [], "xids": [13, 79]}))
    assert "Xid 79" in str(gpus.read(UUID).error)
    asked = calls(state)
    assert "Xid 79" in str(gpus.read(UUID).error)
    assert calls(state) == asked


def test_an_xid_error_of_a_program_does_not_blind(machine: Machine) -> None:
    assert machine(xids=[31, 43]).read(UUID).error is None


def test_a_platform_without_xid_events_is_read_all_the_same(machine: Machine) -> None:
    gpus = machine(fail={"nvmlDeviceRegisterEvents": "NVML_ERROR_NOT_SUPPORTED"})
    assert gpus.read(UUID) == GpuReading(UUID, 22, (), None)


@pytest.mark.parametrize(
    "argv",
    [
        (sys.executable, "-c", "import sys; sys.stdin.readline(); print('not json', flush=True)"),
        (sys.executable, "-c", "pass"),
        ("/nonexistent/python",),
    ],
)
def test_a_helper_that_does_not_work_is_a_reading_that_tells_nothing(machine: Machine, argv: tuple[str, ...]) -> None:
    gpus = machine(argv=argv)
    assert gpus.read(UUID).error
    assert gpus.uuids() is None


def test_a_driver_that_crashes_its_caller_crashes_the_helper_only(machine: Machine) -> None:
    gpus = machine(crash="nvmlDeviceGetHandleByUUID")
    assert gpus.read(UUID).error
    assert gpus.uuids() is None


def test_the_helper_ends_with_the_probe(machine: Machine) -> None:
    gpus = machine()
    gpus.uuids()
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if not children.exists():
        pytest.skip("this kernel does not list a process's children")
    helpers = {int(pid) for pid in children.read_text().split() if is_helper(int(pid))}
    assert helpers
    gpus.close()
    until(lambda: not any(is_helper(pid) for pid in helpers), PATIENT_S, "the helper has ended")


def is_helper(pid: int) -> bool:
    try:
        return b"gpu_helper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
