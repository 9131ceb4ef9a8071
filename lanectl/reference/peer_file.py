"""The shared-memory file between a server and its sidecar, mapped.

The words, the header and where the payload begins are as published (peer_words). The payload differs: rows are
float32, and the sidecar returns what each picked expert makes of a row instead of their weighted sum, so that the
server adds everything up in one fixed order and the tokens are, to the bit, those of any other placement. Hence no
weights travel either.
"""

from __future__ import annotations

import mmap
import os
import threading

import numpy as np
from numpy.typing import NDArray

from lanectl.reference.peer_words import HEADER_AT, MAX_ROWS, PAYLOAD_AT
from lanectl.reference.weights import Floats, Shape

_FLOAT = _INT = 4  # bytes


class PeerFileError(Exception):
    """The file cannot be used."""


class PeerFile:
    """The file, mapped: `words` and `header` as signed 64-bit numbers; x (MAX_ROWS, hidden) float32, the rows of a
    call; local (MAX_ROWS, picked) int32, each pick's place in the map's cold list, -1 for a hot one; out (MAX_ROWS,
    picked, hidden) float32, what the cold ones make of the row."""

    def __init__(self, path: str, shape: Shape) -> None:
        """Open the file; make it, readable and writable for all, if it is not there. Raise PeerFileError."""
        self.path = path
        local_at = PAYLOAD_AT + MAX_ROWS * shape.hidden * _FLOAT
        out_at = local_at + MAX_ROWS * shape.picked * _INT
        size = out_at + MAX_ROWS * shape.picked * shape.hidden * _FLOAT
        self._map = _mapped(path, size)
        bytes_of = memoryview(self._map)
        self._control = bytes_of[:PAYLOAD_AT]
        self.words = bytes_of[:HEADER_AT].cast("q")
        self.header = bytes_of[HEADER_AT:PAYLOAD_AT].cast("q")
        self.x: Floats = np.frombuffer(self._map, np.float32, MAX_ROWS * shape.hidden, PAYLOAD_AT).reshape(
            MAX_ROWS, shape.hidden
        )
        self.local: NDArray[np.int32] = np.frombuffer(self._map, np.int32, MAX_ROWS * shape.picked, local_at).reshape(
            MAX_ROWS, shape.picked
        )
        self.out: Floats = np.frombuffer(self._map, np.float32, MAX_ROWS * shape.picked * shape.hidden, out_at).reshape(
            MAX_ROWS, shape.picked, shape.hidden
        )

    def zero(self) -> None:
        """Begin anew: every word and the header are 0."""
        self._control[:] = bytes(PAYLOAD_AT)


def _mapped(path: str, size: int) -> mmap.mmap:
    try:
        descriptor = _opened(path)
        try:
            found = os.fstat(descriptor).st_size
            if found == 0:
                os.ftruncate(descriptor, size)
            elif found != size:
                raise PeerFileError(f"{path} has {found} bytes, this model's has {size}: remove it")
            return mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise PeerFileError(f"{path}: {problem.strerror}") from None


def _opened(path: str) -> int:
    # First without O_CREAT: in a sticky folder the kernel refuses it on another user's file, even to root.
    try:
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever the umask is
        return descriptor


_order = threading.Lock()
_order.acquire()


def fence() -> None:
    """Everything written or read before it comes before everything after it, on processors that reorder too: giving
    a lock back is a store-release, taking it again a load-acquire behind it."""
    _order.release()
    _order.acquire()
