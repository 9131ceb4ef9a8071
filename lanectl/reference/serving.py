"""The life of a serving process: boot, listen, pass steps on, stop."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import os
import signal
import socket
from collections.abc import Callable

from lanectl.reference import VERSION
from lanectl.reference.boot import BootError, make
from lanectl.reference.bootlog import Log
from lanectl.reference.engine import Engine
from lanectl.reference.fault_answers import faulty_handler
from lanectl.reference.fault_streams import FaultyStream
from lanectl.reference.faults import Faults, StepFaults
from lanectl.reference.http import Connection, Exchange
from lanectl.reference.scheduler import StepReport

_LISTEN_BACKLOG = 2048  # uvicorn's default
_STOP_WITHIN_S = 0.5  # the longest wait for the step in hand; a full step takes some 25 ms


async def serve(settings: argparse.Namespace, faults: Faults, log: Log, listening: socket.socket) -> int:
    """Given the settings and a bound socket, boot, and serve until SIGTERM or SIGINT. Return the exit code: 0, or 1
    if the engine cannot be made or dies."""
    log.engine("serving", f"Reference engine version {VERSION}, model {settings.served_model_name[0]}")
    await asyncio.sleep(faults.seconds("boot-delay", 10.0))
    try:
        scheduler, service = make(settings, log, lambda exchange: FaultyStream(exchange, faults))
    except BootError as problem:
        log.line(f"ValueError: {problem}")
        log.line("RuntimeError: Engine core initialization failed. See root cause above.")
        return 1
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def deliver(report: StepReport) -> None:
        loop.call_soon_threadsafe(service.deliver, report)

    def died() -> None:
        loop.call_soon_threadsafe(service.engine_died)
        loop.call_soon_threadsafe(stop.set)

    engine = Engine(scheduler, deliver, died, StepFaults(faults))
    handler = faulty_handler(service.handle, faults)
    server = await loop.create_server(
        lambda: Connection(handler, _access_log(settings, log)),
        sock=listening,
        backlog=_LISTEN_BACKLOG,
        start_serving="loading" in faults,
    )
    await asyncio.sleep(faults.seconds("loading", 10.0))
    engine.start()
    service.use(engine)
    await server.start_serving()
    log.engine("serving", f"Starting server on http://{settings.host}:{listening.getsockname()[1]}")
    log.uvicorn(f"Started server process [{os.getpid()}]")
    log.uvicorn("Waiting for application startup.")
    log.uvicorn("Application startup complete.")
    if "ignore-sigterm" not in faults:
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    await stop.wait()
    log.uvicorn("Shutting down")
    server.close()
    engine.stop(_STOP_WITHIN_S)
    log.uvicorn(f"Finished server process [{os.getpid()}]")
    return 0 if engine.failed is None else 1


def _access_log(settings: argparse.Namespace, log: Log) -> Callable[[Exchange], None]:
    """Return what is called when an answer begins: it writes uvicorn's line."""

    def write(exchange: Exchange) -> None:
        if not settings.disable_access_log:
            request, phrase = exchange.request, http.client.responses.get(exchange.status, "")
            log.uvicorn(
                f'{request.peer} - "{request.method} {request.path} {request.version}" {exchange.status} {phrase}'
            )

    return write
