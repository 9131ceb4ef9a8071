"""A server on a unix socket that answers like a Docker daemon, as well or as badly as a test says.

For what a real daemon does only rarely: no answer, a cut connection, a kill without an exit. Requests that no handler
takes are answered 404, as a daemon does for a container it does not know.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DAEMON_ID = "stand-in"
CONTAINER_ID = "c" * 64


class Cut(Exception):
    """A handler raises it to close the connection without an answer."""


Handler = Callable[[], tuple[int, Any]]


@dataclass
class Container:
    """The one container of the daemon, as its inspect answer shows it."""

    status: str = "running"
    exit_code: int = 0

    def answer(self) -> dict[str, Any]:
        running = self.status in ("running", "paused")
        return {
            "Id": CONTAINER_ID,
            "Name": "/lane",
            "Image": "sha256:1",
            "State": {"Status": self.status, "Pid": 4711 if running else 0, "ExitCode": self.exit_code},
            "Config": {"Image": "sha256:1", "Labels": {}},
            "HostConfig": {"NetworkMode": "host"},
        }


@dataclass
class StandIn:
    """`on` maps "METHOD /path" (no version, `{id}` for the container) to what is done and answered; `requests` lists
    every request so far. `api_version` is what the daemon says it speaks."""

    url: str
    container: Container = field(default_factory=Container)
    api_version: str = "1.51"
    on: dict[str, Handler] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def hang(self) -> tuple[int, Any]:
        """A handler that gives no answer until the test is over."""
        self.released.wait()
        raise Cut

    def count(self, request: str) -> int:
        return sum(seen == request for seen in self.requests)

    def answer(self, method: str, path: str) -> tuple[int, Any]:
        name = f"{method} {path}".replace(CONTAINER_ID, "{id}")
        self.requests.append(name)
        if name in self.on:
            return self.on[name]()
        known: dict[str, Any] = {
            "GET /version": {"ApiVersion": self.api_version},
            "GET /info": {"ID": DAEMON_ID, "ServerVersion": "28.5"},
            "GET /containers/{id}/json": self.container.answer(),
        }
        return (200, known[name]) if name in known else (404, {"message": f"no answer for {name}"})


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    stand_in: StandIn


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        path = urlsplit(self.path).path
        if path.startswith("/v1."):
            path = "/" + path.split("/", 2)[2]
        try:
            status, body = self.server.stand_in.answer(self.command, path)
        except Cut:
            self.close_connection = True
            return
        self._send(status, body)

    do_POST = do_DELETE = do_GET

    def _send(self, status: int, body: Any) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if status not in (204, 304) else b"")

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *words: Any) -> None:
        pass


@contextmanager
def stand_in_daemon(folder: Path) -> Iterator[StandIn]:
    """Serve on a socket in `folder` until the block ends."""
    path = folder / "docker.sock"
    with _Server(str(path), _Handler) as server:
        server.stand_in = StandIn(f"unix://{path}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server.stand_in
        finally:
            server.stand_in.released.set()
            server.shutdown()
            thread.join()
