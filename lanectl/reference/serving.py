"""The life of the server's process: boot, listen, serve, stop."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import http.client
import os
import signal
import socket
import time

from lanectl.reference import VERSION
from lanectl.reference.bootlog import Log
from lanectl.reference.engine_client import EngineClient, EngineFailed
from lanectl.reference.fault_answers import faulty_handler
from lanectl.reference.fault_streams import FaultyStream
from lanectl.reference.faults import Faults
from lanectl.reference.http import Connection, Exchange
from lanectl.reference.metrics import Metrics
from lanectl.reference.service import Identity, Service
from lanectl.reference.tokenizer import Tokenizer

_LISTEN_BACKLOG = 2048  # uvicorn's default
_STOP_WITHIN_S = 0.5  # the longest wait for the engine's step in hand; a full step takes some 25 ms


class Server:
    """One serving process around one engine."""

    def __init__(self, settings: argparse.Namespace, faults: Faults, log: Log, listening: socket.socket) -> None:
        """Given the settings and a bound socket that does not listen yet."""
        self._settings = settings
        self._faults = faults
        self._log = log
        self._listening = listening
        self._started = time.time()

    async def run(self, process: int, channel: socket.socket) -> int:
        """Given the engine's process and the socket to it, serve until SIGTERM or SIGINT. Return the exit code: 0, or
        1 if the engine cannot be made or dies."""
        log, name = self._log, self._settings.served_model_name[0]
        log.engine(f"Reference engine version {VERSION}, model {name}")
        await asyncio.sleep(self._faults.seconds("boot-delay"))
        engine = EngineClient(process, channel, log)
        try:
            ready = await engine.connect()
        except EngineFailed as problem:
            engine.stop(_STOP_WITHIN_S)
            log.line(f"ValueError: {problem}")
            log.line("RuntimeError: Engine core initialization failed. See root cause above.")
            return 1
        service = Service(
            self._identity(ready.cache_config),
            Tokenizer(),
            Metrics(name, ready.cache_config, self._started),
            lambda exchange: FaultyStream(exchange, self._faults),
        )
        return await self._serve(service, engine)

    async def _serve(self, service: Service, engine: EngineClient) -> int:
        log = self._log
        failed = asyncio.Event()
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def engine_died() -> None:
            log.line("ERROR: EngineCore failed: its process ended")
            service.engine_died()
            failed.set()
            stop.set()

        engine.died = engine_died
        handler = faulty_handler(service.handle, self._faults)
        listener = await loop.create_server(
            lambda: Connection(handler, self._write_access_line),
            sock=self._listening,
            backlog=_LISTEN_BACKLOG,
            start_serving="loading" in self._faults,
        )
        await asyncio.sleep(self._faults.seconds("loading"))
        service.use(engine)
        await listener.start_serving()
        log.engine(f"Starting server on http://{self._settings.host}:{self._listening.getsockname()[1]}")
        for line in (f"Started server process [{os.getpid()}]", "Waiting for application startup."):
            log.uvicorn(line)
        log.uvicorn("Application startup complete.")
        if "ignore-sigterm" not in self._faults:
            loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGINT, stop.set)
        await stop.wait()
        log.uvicorn("Shutting down")
        listener.close()
        engine.stop(_STOP_WITHIN_S)
        log.uvicorn(f"Finished server process [{os.getpid()}]")
        return 1 if failed.is_set() else 0

    def _identity(self, cache_config: dict[str, str]) -> Identity:
        settings = self._settings
        # The same for two servers that give the same answers at the same speed.
        same = (
            settings.seed,
            settings.shape,
            settings.placement,
            settings.max_model_len,
            settings.max_num_seqs,
            cache_config,
        )
        return Identity(
            names=settings.served_model_name,
            max_model_len=settings.max_model_len,
            fingerprint=f"reference-{VERSION}-{hashlib.sha256(repr(same).encode()).hexdigest()[:8]}",
            started=int(self._started),
            api_keys=settings.api_key,
        )

    def _write_access_line(self, exchange: Exchange) -> None:
        if not self._settings.disable_access_log:
            request, phrase = exchange.request, http.client.responses.get(exchange.status, "")
            what = f"{request.method} {request.path} {request.version}"
            self._log.uvicorn(f'{request.peer} - "{what}" {exchange.status} {phrase}')
