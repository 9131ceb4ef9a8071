"""The guard: a detached process that restores production if the swap's own process dies, `kill -9` included.

It is started before production is touched and blocks on a pipe whose other end only the swap's process holds: the
kernel closes it on death. It is also woken by the swap's overall deadline. A swap that cannot start one is refused.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from lanectl.actions.progress import Silent
from lanectl.actions.recover import recover_swap
from lanectl.actions.station import Station
from lanectl.core.journal import SwapState
from lanectl.errors import Busy, LaneError
from lanectl.store.journal import load
from lanectl.store.lock import Lock
from lanectl.store.process import ProcessId, alive
from lanectl.store.process import signal as send_signal

# Starting Python and importing what a restore needs takes under a second; a machine under load may need more.
READY_WITHIN_S = 30.0
READY_BYTE = b"r"
# A TERM lets the owner walk its own way back, which takes as long as a boot; the guard then only watches it.
TERM_WITHIN_S = 60.0
# The lock is free as soon as the owner is dead; a `recover` that was quicker holds it for as long as a boot takes.
LOCK_WITHIN_S = 3600.0
LOOK_EVERY_S = 0.05


class Guard:
    """The owner's side: start it, and keep the pipe that tells it we live."""

    def __init__(self, station: Station, swap: str) -> None:
        self._station = station
        self._swap = swap
        self._alive_fd: int | None = None
        self.pid: int | None = None

    def start(self) -> None:
        """Start the guard and wait until it says it is ready. Raise `LaneError` when it does not."""
        watch, self._alive_fd = os.pipe()
        ready, tell = os.pipe()
        for fd in (watch, tell):
            os.set_inheritable(fd, True)
        root = self._station.site.root
        argv = [sys.executable, "-m", "lanectl", "--site", root, "guard", self._swap]
        argv += ["--alive-fd", str(watch), "--ready-fd", str(tell)]
        log_path = self._station.state.swap(self._swap) / "guard.log"
        try:
            self.pid = self._station.jobs.start(
                argv, name=f"lanectl-guard-{self._swap}", keep_fds=(watch, tell), log_path=str(log_path)
            )
        finally:
            os.close(watch)
            os.close(tell)
        try:
            self._await_ready(ready, log_path)
        finally:
            os.close(ready)

    def _await_ready(self, ready: int, log_path: Path) -> None:
        readable, _, _ = select.select([ready], [], [], READY_WITHIN_S)
        if not readable or os.read(ready, 1) != READY_BYTE:
            said = log_path.read_text(errors="replace").strip().splitlines()[-1:] if log_path.exists() else []
            raise LaneError(
                f"the guard did not start within {READY_WITHIN_S:.0f} s{': ' + said[0] if said else ''}",
                f"see {log_path}; without a guard no swap begins",
            )

    def dismiss(self) -> None:
        """Let go of the guard: with the journal closed it finds nothing to do and ends."""
        if self._alive_fd is not None:
            os.close(self._alive_fd)
            self._alive_fd = None


def guard(station: Station, swap: str, alive_fd: int, ready_fd: int) -> None:
    """The guard's side: get ready, say so, wait for the owner's end or the deadline, and restore what is owed.

    Raise `Dark` when it could not.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    path = station.state.journal(swap)
    state = load(path)
    _preload(station)
    os.write(ready_fd, READY_BYTE)
    os.close(ready_fd)
    while not _ended(alive_fd, station, state):
        if load(path).closed is not None:
            return
        _take_over(station, swap)
    if load(path).closed is not None:
        return
    station.log.warning("the swap's process is gone; restoring what is owed", swap=swap)
    lock = Lock(station.state.lock)
    try:
        lock.acquire(blocking=True, deadline_s=LOCK_WITHIN_S, command="lanectl guard", swap=swap)
    except Busy:
        station.log.error("somebody else holds the lock; leaving the restore to them", swap=swap)
        return
    try:
        if load(path).closed is None and load(path).stuck is None:
            recover_swap(station, swap, Silent(), by="guard")
    finally:
        lock.release()


def _preload(station: Station) -> None:
    """Import and connect now what a restore needs: later the disk may be full or the interpreter upgraded."""
    import requests  # noqa: F401
    import tenacity  # noqa: F401

    station.engine.info()


def _ended(alive_fd: int, station: Station, state: SwapState) -> bool:
    """Wait for the owner's end (True) or the swap's deadline (False)."""
    left = max(0.0, state.deadline - station.clock.monotonic())
    readable, _, _ = select.select([alive_fd], [], [], left)
    return bool(readable)


def _take_over(station: Station, swap: str) -> None:
    """The owner is past the swap's deadline: ask it to end, and end it when it does not."""
    holder = Lock(station.state.lock).holder()
    if holder is None or holder.process is None:
        return
    station.log.error("the swap is past its deadline; stopping its process", swap=swap, pid=holder.pid)
    send_signal(holder.process, signal.SIGTERM)
    if not _gone_within(station, holder.process, TERM_WITHIN_S):
        send_signal(holder.process, signal.SIGKILL)
        _gone_within(station, holder.process, TERM_WITHIN_S)


def _gone_within(station: Station, process: ProcessId, within_s: float) -> bool:
    deadline = station.clock.monotonic() + within_s
    while alive(process):
        if station.clock.monotonic() > deadline:
            return False
        station.clock.sleep(LOOK_EVERY_S)
    return True
