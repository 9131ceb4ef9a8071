"""Reading a local container's log while it grows: its files, in order, to lines."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from lanectl.engine import shim
from lanectl.engine.lines import LineSplitter
from lanectl.errors import NotThere

LOOK_EVERY_S = 0.02  # a log marker is noticed 10 ms after it was written, on average; one look costs about 0.1 ms
READ_SIZE = 64 * 1024


class LocalLog:
    """The lines of a container's log (`LogStream`), those of some of its runs (by number).

    `goes_on` says whether more may come: while it does, the end of the log is waited at. Falling so far behind that
    files were deleted meanwhile loses their lines, no others.
    """

    def __init__(self, directory: str, runs: range, goes_on: Callable[[], bool]) -> None:
        self._directory = directory
        self._runs = runs
        self._segment = (runs.start, 0)  # before the first one, which has number 1
        self._goes_on = goes_on
        self._fd = -1
        self._splitter = LineSplitter()
        self._lines: deque[str] = deque()
        self._ended = False
        self._closed = threading.Event()
        self._reading = threading.Lock()

    def __iter__(self) -> LocalLog:
        return self

    def __next__(self) -> str:
        with self._reading:
            while not self._closed.is_set():
                if self._lines:
                    return self._lines.popleft()
                if self._ended:
                    break
                self._advance()
            self._release()
            raise StopIteration

    def close(self) -> None:
        self._closed.set()
        with self._reading:
            self._release()

    def _advance(self) -> None:
        """Read on, or wait a moment at the end. Whether more may come is asked before the last look, not after."""
        try:
            goes_on = self._goes_on()
        except NotThere:
            goes_on = False
        following = self._following()
        if self._read() or (following is not None and self._open(following)):
            return
        if goes_on:
            self._closed.wait(LOOK_EVERY_S)
        else:
            self._lines += self._splitter.end()
            self._ended = True

    def _read(self) -> bool:
        data = os.read(self._fd, READ_SIZE) if self._fd >= 0 else b""
        self._lines += self._splitter.feed(data)
        return bool(data)

    def _following(self) -> tuple[int, int] | None:
        try:
            found = shim.segments(self._directory)
        except FileNotFoundError:
            return None  # the container was removed
        return next((segment for segment in found if segment > self._segment and segment[0] in self._runs), None)

    def _open(self, segment: tuple[int, int]) -> bool:
        """Go on with the next file. A line goes on in it, too, unless it is another run's or files are missing."""
        if segment != (self._segment[0], self._segment[1] + 1):
            self._lines += self._splitter.end()
        self._release()
        self._segment = segment
        try:
            self._fd = os.open(shim.segment_path(self._directory, segment), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            pass  # deleted meanwhile
        return True

    def _release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
