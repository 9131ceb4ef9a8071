"""HTTP/1.1 messages on a socket, piece by piece and unchanged: enough to pass on whatever a Docker daemon says.

Heads are read to their end; bodies by content length, by chunks, or to the end of the connection (RFC 9112, section 6).
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass

READ_SIZE = 65536
HEAD_END = b"\r\n\r\n"
LINE_END = b"\r\n"
UPGRADED = 101
BODILESS = (204, 304)
# How often a wait for one side looks whether the other side is still there.
LOOK_EVERY_S = 0.05


class Closed(Exception):
    """The other side closed the connection, or cut it."""


@dataclass(frozen=True)
class Head:
    """The raw head of a message: its first line's words and its headers, names in lower case."""

    raw: bytes
    first: tuple[str, str, str]
    headers: dict[str, str]

    @property
    def length(self) -> int | None:
        return int(self.headers["content-length"]) if "content-length" in self.headers else None

    @property
    def chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"


class Wire:
    """One side of a connection. With `beside` given, a read ends with `Closed` when that socket's peer has left."""

    def __init__(self, sock: socket.socket, beside: socket.socket | None = None) -> None:
        self.socket = sock
        self._beside = beside
        self._buffer = b""

    def head(self) -> Head:
        """Read a message's head. Raise `Closed` when there is none."""
        while HEAD_END not in self._buffer:
            self._more()
        raw, _, self._buffer = self._buffer.partition(HEAD_END)
        first, *lines = raw.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        method, target, rest = (*first.split(" ", 2), "", "")[:3]
        return Head(raw + HEAD_END, (method, target, rest), {name.lower(): value.strip() for name, _, value in pairs})

    def body(self, head: Head, *, to_the_end: bool) -> Iterator[bytes]:
        """Yield a message's body as it comes, its framing included. `to_the_end`: one without a length has no end but
        the connection's."""
        if head.chunked:
            yield from self._chunks()
        elif head.length is not None:
            yield from self._exactly(head.length)
        elif to_the_end:
            yield from self.rest()

    def rest(self) -> Iterator[bytes]:
        """Yield what comes until the other side closes."""
        while True:
            try:
                yield self._some()
            except Closed:
                return

    def _chunks(self) -> Iterator[bytes]:
        while True:
            line = self._line()
            yield line
            size = int(line.split(b";")[0], 16)
            yield from self._exactly(size + len(LINE_END))
            if size == 0:
                return

    def _line(self) -> bytes:
        while LINE_END not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(LINE_END)
        return line + LINE_END

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size > 0:
            piece = self._some(size)
            size -= len(piece)
            yield piece

    def _some(self, at_most: int = READ_SIZE) -> bytes:
        if not self._buffer:
            self._more()
        piece, self._buffer = self._buffer[:at_most], self._buffer[at_most:]
        return piece

    def _more(self) -> None:
        try:
            while self._beside is not None and not select.select([self.socket], [], [], LOOK_EVERY_S)[0]:
                if is_gone(self._beside):
                    raise Closed
            piece = self.socket.recv(READ_SIZE)
        except (OSError, ValueError) as error:  # ValueError: our own side closed it meanwhile
            raise Closed from error
        if not piece:
            raise Closed
        self._buffer += piece


def is_gone(sock: socket.socket) -> bool:
    """True when the peer of this socket has closed its side."""
    try:
        return bool(select.select([sock], [], [], 0)[0]) and not sock.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):
        return True
