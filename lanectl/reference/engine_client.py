"""The server's end of the engine: requests out, reports in, on the server's loop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable

from lanectl.reference.bootlog import EngineLog
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

_LOOK_EVERY_S = 0.002  # how often the end of the engine's process is looked for


class EngineClient(asyncio.Protocol):
    """Talks to the engine's process. Nothing here ever waits for it: a hung engine hangs nobody else."""

    def __init__(self, process: int, channel: socket.socket, log: EngineLog) -> None:
        """Given the engine's process id, the socket to it, and who writes its lines."""
        self._process = process
        self._channel = channel
        self._log = log
        self._unpacker = Unpacker()
        self._transport: asyncio.WriteTransport | None = None
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.deliver: Callable[[StepReport], None] = lambda _: None
        self.audited: Callable[[AuditReport], None] = lambda _: None
        self.died: Callable[[], None] = lambda: None

    @property
    def alive(self) -> bool:
        """Whether the engine is booted and has not ended."""
        return self.ready.done() and self._transport is not None

    async def connect(self) -> Ready:
        """Return what the engine says once it is booted. Raise EngineFailed if it never is."""
        await asyncio.get_running_loop().create_connection(lambda: self, sock=self._channel)
        return await self.ready

    def submit(self, request: Submit) -> None:
        """Given a request, have it run: it joins between two steps."""
        self._send(packed(request))

    def abort(self, abort: Abort) -> None:
        """Given whom to forget, have it taken out between two steps."""
        self._send(packed(abort))

    def audit(self, audit: Audit) -> None:
        """Given its number, have the byte audit run between two steps."""
        self._send(packed(audit))

    def stop(self, within_s: float) -> None:
        """End the engine's process: it ends by itself once it sees the closed socket, else it is killed."""
        self.died = lambda: None
        if self._transport is not None:
            self._channel.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + within_s
        while os.waitpid(self._process, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self._process, signal.SIGKILL)
                os.waitpid(self._process, 0)
                return
            time.sleep(_LOOK_EVERY_S)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for message in self._unpacker.feed(data):
            if isinstance(message, StepReport):
                self.deliver(message)
            elif isinstance(message, BootLine):
                self._log.engine(message.text)
            elif isinstance(message, PlainLine):
                self._log.line(message.text)
            elif isinstance(message, AuditReport):
                self.audited(message)
            elif isinstance(message, Ready):
                self.ready.set_result(message)
            elif isinstance(message, Refused):
                self.ready.set_exception(EngineFailed(message.reason))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.ready.done():
            self.ready.set_exception(EngineFailed("the engine's process ended"))
        self.died()

    def _send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


class EngineFailed(Exception):
    """The engine's process could not boot."""
