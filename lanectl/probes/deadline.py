"""A connection whose deadline is for the whole exchange: a server that drips one byte a second cannot hold us.

Socket time-outs (and so those of http.client, urllib3 and requests) start again with every byte received. Here every
receive gets only what is left of the one deadline.
"""

from __future__ import annotations

import io
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


class DeadlineReader(io.RawIOBase):
    """The receiving side of a socket as a raw stream. Raise TimeoutError once the deadline has passed."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview | bytearray) -> int:  # type: ignore[override]
        self._sock.settimeout(left(self._deadline))
        return self._sock.recv_into(buffer)


class DeadlineSocket:
    """What http.client needs of a socket: `sendall`, `makefile`, `close`."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(left(self._deadline))
        self._sock.sendall(data)  # its time-out is for all of `data` (socket.sendall, since Python 3.5)

    def makefile(self, mode: str = "rb", *_: object, **__: object) -> io.BufferedReader:
        return io.BufferedReader(DeadlineReader(self._sock, self._deadline))

    def close(self) -> None:
        """Leave the socket open: http.client closes its side before the body is read. Whoever connected closes it."""


def left(deadline: float) -> float:
    """Given a time.monotonic() deadline, return the seconds left. Raise TimeoutError when there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the deadline has passed")
    return seconds


def connect(host: str, port: int, within_s: float, tls: ssl.SSLContext | None = None) -> socket.socket:
    """Return a connection to the first address of `host` that takes one, TLS handshake done where `tls` is given.

    Raise socket.gaierror (no such name), ssl.SSLError, TimeoutError, ConnectionRefusedError or another OSError: the
    last address's failure. Name lookup is the resolver's and has its own time-outs.
    """
    deadline = time.monotonic() + within_s
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left(deadline))
            sock.connect(address)
            # Requests are one small write each, so waiting to fill a segment could only delay an answer (Nagle).
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock.settimeout(left(deadline))
                return tls.wrap_socket(sock, server_hostname=host)
        except OSError as error:
            sock.close()
            failure = error
            continue
        return sock
    raise failure
