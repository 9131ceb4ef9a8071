"""The GPU probe on a real NVIDIA GPU. Skipped where there is none."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.actions.release import wait_released
from lanectl.clock import SystemClock
from lanectl.core.lane import GpuMemory
from lanectl.probes.gpu import NvmlGpus
from tests.support.poll import until

HOLD_MIB = 4096
HOLD_GPU = Path(__file__).parents[1] / "support" / "hold_gpu.py"


@pytest.fixture
def gpus() -> Iterator[NvmlGpus]:
    gpus = NvmlGpus()
    if not gpus.uuids():
        gpus.close()
        pytest.skip("no NVIDIA GPU that can be read on this machine")
    yield gpus
    gpus.close()


@pytest.fixture
def uuid(gpus: NvmlGpus) -> str:
    found = gpus.uuids()
    assert found
    return found[0]


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, str(HOLD_GPU), "0", str(HOLD_MIB)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def _wait_holding(holder: subprocess.Popen[bytes]) -> None:
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"holding\n"


def test_every_gpu_answers_memory_and_processes(gpus: NvmlGpus) -> None:
    for uuid in gpus.uuids() or ():
        reading = gpus.read(uuid)
        assert reading.error is None
        assert reading.used_mib is not None or reading.processes is not None


def test_an_unknown_uuid_is_an_error_and_the_next_reading_works(gpus: NvmlGpus, uuid: str) -> None:
    assert gpus.read("GPU-00000000-0000-0000-0000-000000000000").error
    assert gpus.read(uuid).error is None


def test_a_killed_process_s_memory_is_seen_to_come_back(
    gpus: NvmlGpus, uuid: str, holder: subprocess.Popen[bytes]
) -> None:
    _wait_holding(holder)
    held = gpus.read(uuid)
    assert held.used_mib is None or held.used_mib >= HOLD_MIB
    assert held.processes is None or held.processes
    idle_mib = 0 if held.used_mib is None else held.used_mib - HOLD_MIB
    holder.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    report = wait_released(
        gpus=gpus,
        clock=SystemClock(),
        memory=GpuMemory("gpu", uuid, above_idle_mib=64, stable_s=0.3, within_s=30.0),
        idle_mib=idle_mib,
        check=lambda: None,
        progress=lambda text: None,
    )
    assert report.known
    until(lambda: holder.poll() is not None, 10.0, "the killed process is reaped")
    print(f"released {time.monotonic() - killed:.2f} s after SIGKILL, 0.3 s of it stable; {report}")
