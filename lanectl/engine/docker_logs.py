"""A container's log as lines, from the engine's frames."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from lanectl.engine.docker_stream import ByteStream
from lanectl.engine.lines import LogLines


class DockerLog:
    """The lines of one log stream; see `LogStream`. Iterating raises `EngineUnknown` when the connection breaks off."""

    def __init__(self, stream: ByteStream, *, tty: bool) -> None:
        self._stream = stream
        self._splitter = LogLines(tty=tty)
        self._lines: deque[str] = deque()
        self._closed = threading.Event()
        self._ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._closed.is_set():
            if self._lines:
                return self._lines.popleft()
            if self._ended:
                break
            chunk = next(self._stream, None)
            if chunk is None:
                self._ended = True
                self._lines.extend(self._splitter.end())
            else:
                self._lines.extend(self._splitter.feed(chunk))
        raise StopIteration

    def close(self) -> None:
        self._closed.set()
        self._stream.close()
