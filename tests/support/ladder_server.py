"""A real HTTP server that speaks just enough of the OpenAI API, with a switch for every way a rung can fail."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "tiny"
MAX_MODEL_LEN = 2048
HEALTH, MODELS, COMPLETIONS, CHAT = "/health", "/v1/models", "/v1/completions", "/v1/chat/completions"
ANSWER_NOTHING_S = 30.0  # a hung request ends with the server, or after this: longer than any test waits


def completion(tokens: int = 1, text: str = " Paris") -> dict[str, Any]:
    choice = {"index": 0, "text": text, "finish_reason": "length"}
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}}


def models(*names: str, max_model_len: int | None = MAX_MODEL_LEN) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "max_model_len": max_model_len} for name in names]}


@dataclass
class Reply:
    """What a path answers. `hang`: accept and say nothing. `drip_s`: send one byte at a time, this far apart."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: bool = False
    drip_s: float | None = None
    cut: bool = False
    raw: bytes | None = None


def well() -> dict[str, Reply]:
    return {
        HEALTH: Reply(),
        MODELS: Reply(body=models(MODEL)),
        COMPLETIONS: Reply(body=completion()),
        CHAT: Reply(404, {"error": {"message": "no chat template", "code": 404}}),
    }


class LadderServer:
    """Listens on loopback until `close()`. Change `replies` at any time; `asked` lists (path, headers, JSON body)."""

    def __init__(self, *, port: int = 0, host: str = "127.0.0.1", api_key: str | None = None) -> None:
        self.replies = well()
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.api_key = api_key
        self._over = threading.Event()
        self._server = _Server((host, port), self, self._over)
        self.port: int = self._server.server_address[1]
        self.url = f"http://{host}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def __enter__(self) -> LadderServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], owner: LadderServer, over: threading.Event) -> None:
        self.owner = owner
        self.over = over
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle of a fault is what the test wanted."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0")))))

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, body: Any) -> None:
        owner = self.server.owner
        owner.asked.append((self.path, dict(self.headers), body))
        if owner.api_key is not None and self.headers.get("Authorization") != f"Bearer {owner.api_key}":
            self._send(Reply(401, {"error": {"message": f"bad key {self.headers.get('Authorization')}"}}))
            return
        self._send(owner.replies.get(self.path, Reply(404)))

    def _send(self, reply: Reply) -> None:
        if reply.hang:
            self.server.over.wait(ANSWER_NOTHING_S)
            self.close_connection = True
            return
        if reply.cut:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        content = _bytes(reply)
        if reply.drip_s is None:
            self.wfile.write(content)
            self.close_connection = True
            return
        for position in range(len(content)):
            self.wfile.write(content[position : position + 1])
            if self.server.over.wait(reply.drip_s):
                return


def _bytes(reply: Reply) -> bytes:
    if reply.raw is not None:
        return reply.raw
    body = b"" if reply.body is None else json.dumps(reply.body).encode()
    lines = [f"HTTP/1.1 {reply.status} Status", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
