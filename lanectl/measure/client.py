"""One streaming chat request: written in one go, its bytes and their arrival times kept, nothing parsed meanwhile.

Only the standard library: `http.client` follows no redirect and knows no proxy, and it sets TCP_NODELAY when it
connects. A stream blocks in its own thread; whoever drives it enforces the deadlines and cancels with `abort`,
which closes the socket under the blocked read. So a hang always ends, with the reason that `abort` was given.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from lanectl.errors import ExitCode, LaneError

READ_SIZE = 65536  # one read takes whatever has arrived, and an event of one step is well under 64 KiB
KEPT_ERROR_BYTES = 2000  # enough of an error answer to name its cause

# Request fields that not every server knows. A server that refuses one of them (HTTP 400 naming it) is asked again
# without: what that costs in certainty is recorded with the numbers.
OPTIONAL_FIELDS = ("return_token_ids", "continuous_usage_stats", "cache_salt", "chat_template_kwargs", "seed")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens. `prefix` is the path before /v1. The key is sent and never shown or recorded."""

    host: str
    port: int
    tls: bool = False
    prefix: str = ""
    api_key: str | None = field(default=None, repr=False)

    @staticmethod
    def parse(base_url: str, api_key: str | None = None) -> Endpoint:
        """Given a URL such as http://127.0.0.1:30006, return the endpoint. Raise LaneError (exit 2) if it is none."""
        try:
            url = urlsplit(base_url)
            port = url.port
        except ValueError as error:
            raise LaneError(f"not a server's address: {base_url!r} ({error})", exit_code=ExitCode.USAGE) from None
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise LaneError(
                f"not a server's address: {base_url!r}", hint="e.g. http://127.0.0.1:30006", exit_code=ExitCode.USAGE
            )
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            # Caught here because http.client's own complaint would print the key.
            raise LaneError("the API key has characters that an HTTP header cannot carry", exit_code=ExitCode.USAGE)
        tls = url.scheme == "https"
        return Endpoint(url.hostname, port or (443 if tls else 80), tls, url.path.rstrip("/"), api_key)

    def headers(self) -> dict[str, str]:
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection that is not open yet; `timeout_s` is the limit of every wait on it."""
        kind = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
        return kind(self.host, self.port, timeout=timeout_s)


@dataclass(frozen=True, slots=True)
class RequestShape:
    """What every request of a run has in common. `dropped`: optional fields that the server refused."""

    model: str
    max_tokens: int
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()

    def body(self, prompt: str, salt: str) -> bytes:
        """Given a prompt and a fresh salt, return the JSON of a greedy streaming chat request.

        `cache_salt` makes the same prompt a stranger to the server's prefix cache; `return_token_ids` and
        `continuous_usage_stats` make the server say how many tokens each chunk brought (source: vLLM 0.32 chat API).
        """
        usage = {"include_usage": True, "continuous_usage_stats": True}
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "seed": 0,
            "stream": True,
            "stream_options": {name: value for name, value in usage.items() if name not in self.dropped},
            "return_token_ids": True,
            "cache_salt": salt,
        }
        if self.template_kwargs:
            fields["chat_template_kwargs"] = dict(self.template_kwargs)
        return json.dumps({name: value for name, value in fields.items() if name not in self.dropped}).encode()

    def refused_by(self, answer: str) -> frozenset[str]:
        """Given the text of an HTTP 400, return the optional fields still in use that it names."""
        return frozenset(name for name in OPTIONAL_FIELDS if name not in self.dropped and name in answer)


@dataclass(slots=True)
class Capture:
    """What one exchange left behind. Times are monotonic ns, None when that moment never came.

    `reads`: (arrival, bytes) of each read of a 200 answer's body. `failure`: "code: detail", None while all is well.
    """

    t_sched: int | None = None
    t_send: int | None = None
    t_headers: int | None = None
    t_first_byte: int | None = None
    t_done: int | None = None
    status: int | None = None
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    error_body: bytes = b""
    failure: str | None = None


class Stream:
    """One request on its own connection. `open`, then `exchange` in the stream's thread; `abort` from any thread."""

    def __init__(self, endpoint: Endpoint, body: bytes, request_id: str) -> None:
        self.capture = Capture()
        self._endpoint = endpoint
        self._body = body
        self._request_id = request_id
        self._socket: socket.socket | None = None
        self._connection: http.client.HTTPConnection | None = None
        self._ending = threading.Lock()

    def open(self, connect_s: float) -> None:
        """Connect and lay the request out, so that only its bytes are left to send.

        On failure record `connect: …` in the capture; never raise for what a network does.
        """
        connection = self._endpoint.connection(connect_s)
        try:
            connection.connect()
            self._lay_out(connection)
        except (OSError, http.client.HTTPException, UnicodeError) as error:  # UnicodeError: no such host name can be
            self._fail(f"connect: {error}")
            connection.close()
            return
        self._connection, self._socket = connection, connection.sock
        self._socket.settimeout(None)  # blocking: each read is one system call, and `abort` ends a hang

    def _lay_out(self, connection: http.client.HTTPConnection) -> None:
        connection.putrequest("POST", self._endpoint.prefix + "/v1/chat/completions")
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(self._body)),
            "Accept": "text/event-stream",
            "x-request-id": self._request_id,
            **self._endpoint.headers(),
        }
        for name, value in headers.items():
            connection.putheader(name, value)

    def exchange(self) -> None:
        """Send the request and read the answer to its end, into the capture. Never raise for what a server does."""
        if self._connection is None or self.capture.failure is not None:
            return
        try:
            self._exchange(self._connection)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._fail(f"cut: {type(error).__name__}: {error}".rstrip(": "))
        finally:
            self.capture.t_done = time.monotonic_ns()
            self.close()

    def _exchange(self, connection: http.client.HTTPConnection) -> None:
        capture, reads = self.capture, self.capture.reads
        capture.t_send = time.monotonic_ns()
        connection.endheaders(self._body)
        response = connection.getresponse()
        capture.t_headers = time.monotonic_ns()
        capture.status = response.status
        if response.status != http.HTTPStatus.OK:
            capture.error_body = response.read(KEPT_ERROR_BYTES)
            return
        while True:
            piece = response.read1(READ_SIZE)
            now = time.monotonic_ns()
            if not piece:
                break
            reads.append((now, piece))
            if capture.t_first_byte is None:
                capture.t_first_byte = now

    def abort(self, reason: str) -> None:
        """End the exchange now: the blocked read returns at once, and the capture carries `reason`."""
        self._fail(reason)
        with self._ending:
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the peer was faster

    def close(self) -> None:
        """Close the connection, open or not, used or not."""
        with self._ending:
            self._socket = None
            if self._connection is not None:
                self._connection.close()

    def _fail(self, reason: str) -> None:
        """Keep the first reason: what follows is its consequence."""
        if self.capture.failure is None:
            self.capture.failure = reason
