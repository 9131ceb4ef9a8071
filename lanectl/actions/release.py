"""Wait until a GPU is released (core/release.py decides), or say who holds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lanectl.core.lane import GpuMemory
from lanectl.core.release import GpuSample, Holder, ReleaseState, judge_release
from lanectl.errors import ExitCode, StillHeld
from lanectl.ports import Clock, GpuReading, Gpus

# 60 GiB of a killed process came back in 0.13 to 0.15 s on an H200 (driver 580), where a reading costs 0.08 ms.
READ_EVERY_S = 0.1
# Readings that cannot tell are tried again for this long before we say so: a driver that is busy tearing down a
# context of 200 GiB may fail a reading, one that answers nothing for 5 s will not answer the sixth.
UNKNOWN_FOR_S = 5.0


@dataclass(frozen=True, slots=True)
class ReleaseReport:
    """`known` False: it could not be told whether the GPU is released (`detail` says why); the caller decides.

    `basis`: memory | processes | "". `used_mib`: the last reading, None where memory cannot be read.
    """

    known: bool
    seconds: float
    used_mib: int | None
    basis: str
    detail: str


def wait_released(
    *,
    gpus: Gpus,
    clock: Clock,
    memory: GpuMemory,
    idle_mib: int,
    check: Callable[[], None],
    progress: Callable[[str], None],
) -> ReleaseReport:
    """Given a service's GPU and its idle baseline, return once it is released, or once it is plain that none can tell.

    `check` is called at every reading and may raise. Raise `StillHeld` naming the holders after `memory.within_s`.
    """
    began = known_at = clock.monotonic()
    samples: list[GpuSample] = []
    while True:
        check()
        reading = gpus.read(memory.uuid)
        now = clock.monotonic()
        samples.append(_sample(now, reading))
        verdict = judge_release(samples, floor_mib=idle_mib + memory.above_idle_mib, stable_s=memory.stable_s)
        if verdict.state is ReleaseState.RELEASED:
            return ReleaseReport(True, now - began, reading.used_mib, verdict.basis, verdict.detail)
        late = now - began >= memory.within_s
        if verdict.state is not ReleaseState.UNKNOWN:
            known_at = now
        elif late or now - known_at >= UNKNOWN_FOR_S or gpus.uuids() is None:
            return ReleaseReport(False, now - began, None, "", reading.error or verdict.detail)
        if late:
            raise _held(memory, verdict.detail)
        progress(f"{memory.role}: {verdict.detail}")
        clock.sleep(READ_EVERY_S)


def _sample(at: float, reading: GpuReading) -> GpuSample:
    holders = None
    if reading.processes is not None:
        holders = tuple(Holder(process.pid, process.name, process.used_mib) for process in reading.processes)
    return GpuSample(at, reading.used_mib, holders)


def _held(memory: GpuMemory, detail: str) -> StillHeld:
    return StillHeld(
        f"{memory.role} ({memory.uuid}) is not released after {memory.within_s:g} s: {detail}",
        "end the holder (`nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv` lists them); memory held "
        "by nobody is stranded in the driver: boot nothing on top of it and do not reset the GPU",
        ExitCode.CANDIDATE,
    )
