"""The few Engine API calls that bring up an engine for the tests need, on the standard library alone."""

from __future__ import annotations

import http
import http.client
import json
import socket
from typing import Any

ANSWER_LIMIT_S = 30.0  # one request on a local socket; the longest is the import of an image of 2 MB


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_LIMIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ANSWER_LIMIT_S)
        self.sock.connect(self._path)


def call(url: str, method: str, path: str, body: bytes | None = None) -> Any:
    """Given a unix:// endpoint, make one Engine API call and return its answer (decoded when it is one JSON value).

    Raise OSError when nothing answers, or when the answer is not a success (its status and text in the message).
    """
    connection = _UnixConnection(url.removeprefix("unix://"))
    try:
        connection.request(method, path, body, {"Content-Type": "application/x-tar"} if body else {})
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise OSError(f"{method} {path} on {url} answered {answer.status}: {text}")
        try:
            return json.loads(text)
        except ValueError:
            return text
    except http.client.HTTPException as error:
        raise OSError(f"{method} {path} on {url}: {error!r}") from error
    finally:
        connection.close()


def ping(url: str) -> bool:
    """Return whether an engine answers on this unix:// endpoint."""
    try:
        return bool(call(url, "GET", "/_ping"))
    except OSError:
        return False
