"""One local container's run: what is true of it now, its start through a supervisor, its end.

A pid proves nothing: the service and its supervisor are known by pid, start time and boot id. A supervisor that lives
holds the container's lock; while it does, it alone writes the run record.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lanectl.core.container import Status
from lanectl.engine import shim
from lanectl.engine.local_leftovers import leftovers
from lanectl.engine.local_store import Entry, try_flock
from lanectl.errors import EngineError, EngineUnknown, LaneError, NotThere
from lanectl.ports import Jobs
from lanectl.store import process
from lanectl.store.files import explained, open_regular
from lanectl.store.process import ProcessId, Stat

START_WITHIN_S = 20.0  # a start takes 30 ms; a machine that swaps or boots may need seconds
KILL_WITHIN_S = 15.0  # a killed process is gone in milliseconds, freeing 250 GB takes seconds; beyond, it is a ghost
LOOK_EVERY_S = 0.003  # one look costs about 0.1 ms
STOPPED = "T"  # proc(5): stopped by a signal

REBOOTED = "the machine was restarted while it ran; its exit code is not known"
LOST = "its supervisor was killed; its exit code is not known"


@dataclass(frozen=True, slots=True)
class Run:
    """A container's last run as it is now. `number` counts its starts; `lost`: it ended and nobody saw how."""

    number: int
    status: Status
    exit_code: int | None = None
    error: str = ""
    started_at: str = ""
    finished_at: str = ""
    main: ProcessId | None = None
    shim: ProcessId | None = None
    lost: bool = False

    @property
    def running(self) -> bool:
        return self.status in (Status.RUNNING, Status.PAUSED)


def look(directory: str, *, owned: bool = False) -> Run:
    """Given a container's directory, return its last run as it is now. Raise `NotThere` when it was removed.

    `owned`: the caller holds the container's lock, so that a held lock does not mean a living supervisor.
    """
    run = _recorded(directory)
    if not run.running:
        return run
    if run.main is not None:
        if run.main.boot_id != process.boot_id():
            return replace(run, status=Status.EXITED, error=REBOOTED, lost=True)
        found = process.stat(run.main.pid)
        if found is not None and not found.ended and found.start_time == run.main.start_time:
            return replace(run, status=Status.PAUSED) if found.state == STOPPED else run
    if not owned and supervised(directory):
        return run  # the service ended, and its supervisor is clearing away what it left
    run = _recorded(directory)  # written, perhaps, while we looked
    return replace(run, status=Status.EXITED, error=run.error or LOST, lost=True) if run.running else run


def supervised(directory: str) -> bool:
    """True while the container's supervisor (or a start) lives: it holds the container's lock."""
    path = Path(directory, "lock")
    try:
        fd = open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not try_flock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def pids(entry: Entry, run: Run) -> frozenset[int]:
    """Return the pids of the container's processes, its supervisor left out; of a lost run, what it left behind."""
    if run.running and run.shim is not None and supervised(entry.directory):
        return frozenset(shim.descendants(run.shim.pid))
    return frozenset(found.pid for found in leftovers(entry.id, run.main)) if run.running or run.lost else frozenset()


@contextlib.contextmanager
def ownership(directory: str) -> Iterator[int | None]:
    """Hold the container's lock, as only its supervisor, or who starts or clears it, may; give its descriptor.

    None when it runs, and the lock is its supervisor's. Raise `EngineUnknown` when neither comes about in time,
    `NotThere` when the container was removed.
    """
    path = Path(directory, "lock")
    with explained(path, "open"):
        try:
            fd = open_regular(path, os.O_RDWR)
        except FileNotFoundError as error:
            raise NotThere(f"{directory} was removed") from error
    try:
        deadline = time.monotonic() + START_WITHIN_S
        while not try_flock(fd, fcntl.LOCK_EX):
            if look(directory).running:
                yield None
                return
            if time.monotonic() > deadline:
                raise EngineUnknown(f"{path} is held by another process for {START_WITHIN_S:.0f} s", f"fuser -v {path}")
            time.sleep(LOOK_EVERY_S)
        yield fd
    finally:
        os.close(fd)


def launch(jobs: Jobs, entry: Entry, plan: Mapping[str, Any], lock_fd: int) -> None:
    """Start a supervisor that starts the service, and wait for its word. Raise `EngineError`, `EngineUnknown`.

    The supervisor inherits the lock's descriptor, and with it the lock.
    """
    words = f"{entry.directory}/shim.log"
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            command = [sys.executable, "-I", "-S", shim.__file__, entry.directory, str(theirs.fileno()), str(lock_fd)]
            name, keep = f"lanectl-{entry.id[:12]}", (theirs.fileno(), lock_fd)
            try:
                jobs.start(command, name=name, keep_fds=keep, log_path=words)
            except LaneError as error:
                raise EngineError(error.message, error.hint) from error
        ours.settimeout(START_WITHIN_S)
        try:
            ours.sendall(json.dumps(plan).encode())
            ours.shutdown(socket.SHUT_WR)
            answer = ours.makefile("rb").read()
        except TimeoutError as error:
            raise EngineUnknown(f"the supervisor of {entry.name} has not answered in {START_WITHIN_S:.0f} s") from error
        except OSError as error:
            raise EngineError(f"the supervisor of {entry.name} died", f"its words are in {words}") from error
    if not answer:
        raise EngineError(f"the supervisor of {entry.name} died", f"its words are in {words}")
    problem = json.loads(answer).get("error")
    if problem:
        raise EngineError(f"container {entry.name}: {problem}")


def kill(entry: Entry) -> bool:
    """SIGKILL the service and all that is left of it; return, once nothing is, whether the service died of it.

    Raise `EngineUnknown` when something is still there after a bounded wait.
    """
    killed = False
    deadline = time.monotonic() + KILL_WITHIN_S
    while (run := look(entry.directory)).running:
        if time.monotonic() > deadline:
            raise EngineUnknown(f"container {entry.name} still runs {KILL_WITHIN_S:.0f} s after SIGKILL")
        if run.main is not None and process.signal(run.main, signal.SIGKILL):
            killed = True
        if run.shim is not None:
            process.signal(run.shim, signal.SIGCONT)  # stopped, it could not clear away the rest
        if run.main is None:
            _kill_leftovers(entry, run)
        time.sleep(LOOK_EVERY_S)
    if run.lost:
        with ownership(entry.directory) as lock:
            if lock is not None:
                settle(entry)
    return killed


def settle(entry: Entry) -> Run:
    """Return the last run. When it was lost, first kill what it left, and write down that it ended.

    The caller holds the container's lock. Raise `EngineUnknown` when something cannot be killed.
    """
    run = look(entry.directory, owned=True)
    if not run.lost:
        return run
    deadline = time.monotonic() + KILL_WITHIN_S
    while left := _kill_leftovers(entry, run):
        if time.monotonic() > deadline:
            names = ", ".join(str(found.pid) for found in left)
            raise EngineUnknown(f"container {entry.name}: left over and not to be killed: processes {names}")
        time.sleep(LOOK_EVERY_S)
    ended = {"state": "exited", "run": run.number, "started_at": run.started_at, "error": run.error}
    with explained(Path(entry.directory), "write the run record in"):
        shim.write_record(entry.directory, ended)
    return run


def _kill_leftovers(entry: Entry, run: Run) -> tuple[Stat, ...]:
    left = leftovers(entry.id, run.main)
    for found in left:
        shim.kill_exactly(found.pid, found.start_time)
    return left


def _recorded(directory: str) -> Run:
    """What the run record says, whatever became true since."""
    record = shim.read_record(directory)
    if record is None:
        return _damaged(directory)
    number, state = record["run"], record["state"]
    if state == "created" or (state == "failed" and number == 1):
        return Run(number, Status.CREATED, error=record.get("error", ""))
    boot = record.get("boot_id", "")
    return Run(
        number=number,
        status=Status.RUNNING if state == "running" else Status.EXITED,
        exit_code=record.get("exit_code"),
        error=record.get("error", ""),
        started_at=record.get("started_at", ""),
        finished_at=record.get("finished_at", ""),
        main=_process(record.get("main"), boot),
        shim=_process(record.get("shim"), boot),
    )


def _damaged(directory: str) -> Run:
    """Taken for running until its lock says that it is not; its log's files tell how often it was started."""
    try:
        number = max((run for run, _ in shim.segments(directory)), default=0)
    except FileNotFoundError as error:
        raise NotThere(f"{directory} was removed") from error
    return Run(number, Status.RUNNING, error=f"both run records in {directory} are damaged")


def _process(identity: Any, boot: str) -> ProcessId | None:
    return ProcessId(identity[0], identity[1], boot) if identity else None
