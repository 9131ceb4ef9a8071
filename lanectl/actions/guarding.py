"""The guard's own side: get ready, wait for the owner's end or the deadline, and restore what is owed."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress

from lanectl.actions.guard import READY_BYTE
from lanectl.actions.observe import observe
from lanectl.actions.preload import preload
from lanectl.actions.progress import Silent
from lanectl.actions.recover import recover_swap
from lanectl.actions.station import Station
from lanectl.core.journal import SwapState
from lanectl.errors import Busy
from lanectl.store.journal import load
from lanectl.store.lock import Lock
from lanectl.store.process import ProcessId, alive
from lanectl.store.process import signal as send_signal

# A TERM lets the owner walk its own way back, which takes as long as a boot; the guard then only watches it.
TERM_WITHIN_S = 60.0
# The lock is free as soon as the owner is dead; a `recover` that was quicker holds it for as long as a boot takes.
LOCK_WITHIN_S = 3600.0
LOOK_EVERY_S = 0.05


def guard(station: Station, swap: str, alive_fd: int, ready_fd: int) -> None:
    """Get ready, say so, wait, and restore what is owed. Raise `Dark` when it could not."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    path = station.state.journal(swap)
    state = load(path)
    preload(station)
    # A restore begins with this very look, so that whatever it imports and connects is there when it counts.
    observe(station, state, released=False, proven=False)
    with suppress(BrokenPipeError):  # the owner died while we got ready: nobody listens, and there is work
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


def _ended(alive_fd: int, station: Station, state: SwapState) -> bool:
    """Wait for the owner's end (True) or the swap's deadline (False)."""
    left = max(0.0, state.deadline - station.clock.monotonic())
    readable, _, _ = select.select([alive_fd], [], [], left)
    return bool(readable)


def _take_over(station: Station, swap: str) -> None:
    """The owner is past the swap's deadline: ask it to end, and end it when it does not."""
    holder = Lock(station.state.lock).holder()
    if holder is None or holder.process is None:
        station.clock.sleep(LOOK_EVERY_S)  # the owner let go of the lock and is about to end
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
