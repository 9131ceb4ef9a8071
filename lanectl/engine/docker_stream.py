"""The bytes of an endless answer of the engine, such as a followed log, with an end that another thread can bring."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lanectl.errors import EngineError, EngineUnknown

if TYPE_CHECKING:
    import docker
    import requests

READ_BYTES = 65536
CUT_OFF = "the connection to the container engine broke off"


class ByteStream:
    """The bytes of one answer as they come. `close()` may be called from another thread and ends the iteration at once.

    Iterating raises `EngineUnknown` when the connection breaks off before the engine ended the answer.
    """

    def __init__(self, session: docker.APIClient, response: requests.Response) -> None:
        self._session = session
        self._response = response
        self._closed = threading.Event()
        self._reading = threading.Lock()
        self._socket = _socket_of(response)
        self._socket.settimeout(None)  # a quiet log is not a dead one; close() is what ends a wait
        self._chunks: Iterator[bytes] = response.raw.stream(READ_BYTES)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        import urllib3

        with self._reading:
            if self._closed.is_set():
                raise StopIteration
            try:
                return next(self._chunks)
            except StopIteration:
                self._release()
                raise
            except (urllib3.exceptions.HTTPError, OSError) as error:
                closed = self._closed.is_set()
                self._release()
                if closed:
                    raise StopIteration from None
                raise EngineUnknown(f"{CUT_OFF}: {error}") from error

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a reader that is blocked in another thread
        with self._reading:
            self._release()

    def _release(self) -> None:
        self._closed.set()
        self._response.close()
        self._session.close()


def _socket_of(response: requests.Response) -> socket.socket:
    connection = response.raw.connection
    if connection is None or connection.sock is None:
        raise EngineError("the engine closed a log stream before it began")
    return connection.sock
