"""Proof that what a lane held is free again: its port, its GPU memory, its shared-memory files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lanectl.actions.interrupts import Interrupts
from lanectl.actions.progress import Progress
from lanectl.actions.release import wait_released
from lanectl.actions.station import Station
from lanectl.core.lane import GpuMemory
from lanectl.errors import LaneError, StillHeld

# The kernel frees a listening socket with its last process; a minute covers processes that take their time to die.
PORT_WITHIN_S = 60.0
PORT_LOOK_EVERY_S = 0.01


def wait_free(
    station: Station,
    *,
    port: tuple[str, int] | None,
    memory: tuple[GpuMemory, ...],
    shm: tuple[str, ...],
    unknown_is_free: bool,
    progress: Progress,
    check: Callable[[], None] = Interrupts.ignore,
) -> dict[str, Any]:
    """Wait until port and memory are free and the shared-memory files are removed; return what was seen.

    `unknown_is_free`: a GPU whose memory cannot be read counts as free (the way back, every container gone), else it
    is an error (nothing boots on top of what cannot be seen). Raise `LaneError` naming the holder.
    """
    seen: dict[str, Any] = {}
    if port is not None:
        seen["port"] = _port_free(station, *port, check=check)
    for one in memory:
        progress.ticker(f"waiting for the memory of {one.role}")
        report = wait_released(
            gpus=station.gpus,
            clock=station.clock,
            memory=one,
            idle_mib=_idle_mib(station, one),
            check=check,
            progress=progress.ticker,
        )
        if not report.known and not unknown_is_free:
            raise LaneError(
                f"the memory of {one.role} ({one.uuid}) cannot be read, so nothing is booted on it",
                "run `nvidia-smi`; after an Xid error the driver must be reset by a person",
            )
        seen[f"memory:{one.role}"] = {"known": report.known}
    for path in shm:
        seen[path] = _remove_shm(path)
    return seen


def _idle_mib(station: Station, memory: GpuMemory) -> int:
    gpu = station.site.gpus.get(memory.role)
    return gpu.idle_mib if gpu else 0


def _port_free(station: Station, host: str, port: int, check: Callable[[], None]) -> str:
    deadline = station.clock.monotonic() + PORT_WITHIN_S
    while not station.prober.can_bind(host, port):
        check()
        if station.clock.monotonic() > deadline:
            owner = station.prober.port(host, port)
            who = ", ".join(owner.names) or "an unknown process"
            raise StillHeld(
                f"port {port} is still held by {who} {PORT_WITHIN_S:.0f} s after the lane's containers ended",
                f"`ss -ltnp 'sport = :{port}'` shows the holder; end it, then run `lanectl recover`",
            )
        station.clock.sleep(PORT_LOOK_EVERY_S)
    return "free"


def _remove_shm(path: str) -> str:
    """Remove one declared shared-memory file; nothing else ever is."""
    try:
        Path(path).unlink()
    except FileNotFoundError:
        return "absent"
    except OSError as error:
        raise LaneError(
            f"{path} cannot be removed: {error.strerror}",
            f"`ls -l {path}` shows its owner: in /dev/shm only the owner and root may remove a file",
        ) from error
    return "removed"
