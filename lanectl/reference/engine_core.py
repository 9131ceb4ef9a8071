"""The engine's process: it makes the model and its cache, then steps while there is work.

It is a process of its own, as in vLLM, so that the server answers /health, takes requests and notices lost clients
while a step is being computed, or hangs.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from lanectl.reference.faults import Faults, StepFaults
from lanectl.reference.messages import (
    Abort,
    Audit,
    AuditReport,
    BootLine,
    PlainLine,
    Ready,
    Refused,
    StepReport,
    Submit,
    Unpacker,
    packed,
)

if TYPE_CHECKING:
    from lanectl.reference.scheduler import Scheduler
    from lanectl.reference.upkeep import Upkeep

_READ_SIZE = 1 << 20  # bytes; a long prompt in one read
_PR_SET_PDEATHSIG = 1  # prctl(2)


class EngineCore:
    """The engine's end of the socket pair."""

    def __init__(self, channel: socket.socket, faults: Faults) -> None:
        self._channel = channel
        self._faults = faults
        self._step_faults = StepFaults(faults)
        self._unpacker = Unpacker()
        self._waits = select.poll()
        self._waits.register(channel, select.POLLIN)

    def run(self, settings: argparse.Namespace) -> None:
        """Given the settings, boot, then step while there is work, until the server's end is closed."""
        # One thread for the matrix products: they are far too small to share. Must be set before numpy is loaded.
        os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
        from lanectl.reference.boot import BootError, boot_engine
        from lanectl.reference.upkeep import Upkeep

        try:
            booted = boot_engine(settings, self, self._faults)
        except BootError as problem:
            self._send(Refused(str(problem)))
            return
        self._send(Ready(booted.cache_config))
        upkeep = Upkeep(booted, self)
        try:
            self._step_for_ever(booted.scheduler, upkeep)
        finally:
            upkeep.close()

    def engine(self, message: str) -> None:
        """A line for the log, as vLLM's logger writes it."""
        self._send(BootLine(message))

    def line(self, text: str) -> None:
        """A line for the log as it is."""
        self._send(PlainLine(text))

    def _step_for_ever(self, scheduler: Scheduler, upkeep: Upkeep) -> NoReturn:
        while True:
            messages = self._messages(0 if scheduler.busy else upkeep.wait_ms())
            for message in messages:
                if isinstance(message, Submit):
                    self._step_faults.submitted += 1
                    scheduler.submit(message)
                elif isinstance(message, Abort):
                    scheduler.abort(message)
                elif isinstance(message, Audit):
                    self._send(upkeep.audit(message.number))
            if messages or scheduler.busy:
                self._step_faults.before_step()
                self._send(scheduler.step())
            upkeep.look()

    def _messages(self, wait_ms: int | None) -> list[Any]:
        """What the server sent. Wait so long for something, None for ever. Raise SystemExit once the server is gone."""
        messages: list[Any] = []
        while self._waits.poll(0 if messages else wait_ms):
            data = self._channel.recv(_READ_SIZE)
            if not data:
                raise SystemExit(0)
            messages += self._unpacker.feed(data)
        return messages

    def _send(self, message: BootLine | PlainLine | Refused | Ready | StepReport | AuditReport) -> None:
        try:
            self._channel.sendall(packed(message))
        except OSError:
            raise SystemExit(0) from None  # the server is gone


def start_engine(settings: argparse.Namespace, faults: Faults, listening: socket.socket) -> tuple[int, socket.socket]:
    """Start the engine's process, which has no part in the server's port. Return its process id and the server's end
    of the socket pair."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        listening.close()
        _run_as_child(EngineCore(theirs, faults), settings)
    theirs.close()
    return child, ours


def _run_as_child(core: EngineCore, settings: argparse.Namespace) -> NoReturn:
    # The server decides when the engine ends: a signal meant for both must not take the engine away under it. And
    # nothing may outlive a server that was killed, not even an engine that hangs.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    code = 1
    try:
        core.run(settings)
        code = 0
    except SystemExit:
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
