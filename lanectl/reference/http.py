"""A small HTTP/1.1 server on asyncio: keep-alive, pipelining in order, fixed and chunked answers.

It reads requests and writes answers; what they mean is the handler's business.
"""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_HEAD_LIMIT = 64 * 1024  # bytes of a request's head; uvicorn's default
_BODY_LIMIT = 16 * 1024 * 1024  # bytes of a body; a prompt of the longest context fits many times over


@dataclass(frozen=True)
class HttpRequest:
    """One request; header names in lower case, the path without its query."""

    method: str
    path: str
    version: str
    headers: dict[str, str]
    body: bytes
    peer: str


class _BadRequest(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Exchange:
    """One request's answer: either one `reply`, or `open`, some `send`, and `finish` or `cut`."""

    def __init__(self, connection: Connection, request: HttpRequest) -> None:
        self._connection = connection
        self.request = request
        self.status = 0
        self.gone = False
        self.on_gone: Callable[[], None] | None = None  # called once if the client leaves before the end
        self._chunked = request.version == "HTTP/1.1"
        asked = request.headers.get("connection", "").lower()
        self._keep = self._chunked and asked != "close"

    def reply(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Answer with a whole body."""
        sized = [("content-length", str(len(body))), ("content-type", content_type), *headers]
        self._head(status, sized, b"" if self.request.method == "HEAD" else body)
        self._end(keep=self._keep)

    def open(self, content_type: str) -> None:
        """Begin an answer of unknown length."""
        framing = [("transfer-encoding", "chunked")] if self._chunked else []
        self._keep = self._keep and self._chunked
        self._head(200, [("content-type", content_type), ("cache-control", "no-cache"), *framing], b"")

    def send(self, data: bytes) -> None:
        """Send a piece of an opened answer."""
        if not self.gone:
            self._connection.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def finish(self) -> None:
        """End an opened answer."""
        if not self.gone:
            if self._chunked:
                self._connection.write(b"0\r\n\r\n")
            self._end(keep=self._keep)

    def cut(self) -> None:
        """Drop the connection without ending the answer, as if the client had left."""
        self._connection.drop()

    def _head(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        if self.gone:
            return
        self.status = status
        self._connection.began(self)
        if not self._keep:
            headers.append(("connection", "close"))
        lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in headers]
        self._connection.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def _end(self, keep: bool) -> None:
        if not self.gone:
            self.on_gone = None
            self._connection.ended(keep)

    def left(self) -> None:
        """The client is gone; whatever comes now is dropped."""
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()
            self.on_gone = None


Handler = Callable[[Exchange], None]


class Connection(asyncio.Protocol):
    """One client's connection: one request at a time, the next one waits in the buffer."""

    def __init__(self, handler: Handler, began: Handler) -> None:
        """Given the handler of requests, and who is told when an answer begins."""
        self._handler = handler
        self.began = began
        self._buffer = bytearray()
        self._exchange: Exchange | None = None
        self._transport: asyncio.Transport | None = None
        self._peer = "-"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        name = transport.get_extra_info("peername")
        if name:
            self._peer = f"{name[0]}:{name[1]}"

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()
        if self._exchange is not None and len(self._buffer) > _BODY_LIMIT:
            self.drop()  # a client that goes on sending while it is being answered

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            exchange.left()

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        if self._transport is not None:
            self._transport.write(data)

    def drop(self) -> None:
        """Close the connection in the middle of an answer."""
        if self._transport is not None:
            self._transport.close()

    def ended(self, keep: bool) -> None:
        """The answer in hand is complete: go on with the next request, or close."""
        self._exchange = None
        if not keep:
            self.drop()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Read one request out of the buffer, if it is there as a whole, and have it handled."""
        if self._exchange is not None or self._transport is None or self._transport.is_closing():
            return
        try:
            request = self._read()
        except _BadRequest as problem:
            broken = HttpRequest("-", "-", "HTTP/1.1", {"connection": "close"}, b"", self._peer)
            self._exchange = Exchange(self, broken)
            self._exchange.reply(problem.status, str(problem).encode(), "text/plain; charset=utf-8")
            return
        if request is not None:
            self._exchange = Exchange(self, request)
            self._handler(self._exchange)

    def _read(self) -> HttpRequest | None:
        """Return the first request in the buffer and take it out; None while it is not complete. Raise _BadRequest."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                raise _BadRequest(431, "request header fields too large")
            return None
        method, target, version, headers = _parse_head(self._buffer[:end].decode("latin-1"))
        length = _body_length(headers)
        have = len(self._buffer) - (end + 4)
        if have < length:
            if headers.pop("expect", "").lower() == "100-continue" and have == 0:
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        return HttpRequest(method, target.partition("?")[0], version, headers, body, self._peer)


def _parse_head(head: str) -> tuple[str, str, str, dict[str, str]]:
    first, *rest = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _BadRequest(400, "malformed request line")
    headers = {}
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise _BadRequest(400, "malformed header")
        headers[name.lower()] = value.strip()
    return words[0], words[1], words[2], headers


def _body_length(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise _BadRequest(411, "a body must come with its length")
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise _BadRequest(400, "malformed content-length")
    if len(text) > 12 or int(text) > _BODY_LIMIT:
        raise _BadRequest(413, "request body too large")
    return int(text)
