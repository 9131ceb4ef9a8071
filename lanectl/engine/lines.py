"""Log bytes to log lines. PURE: bytes go in as they arrive, complete lines come out.

An item of a log stream is a frame, not a line: it may be a part of a line, one byte, or a cut at 16 KB (json-file).
Source of the frame format: Docker Engine API, "Attach to a container", stream format.
"""

from __future__ import annotations

import re
import struct

from lanectl.errors import EngineError

# A line longer than this is handed on in pieces, so that a server that never ends its line cannot fill our memory.
MAX_LINE_BYTES = 1024 * 1024  # vLLM's longest lines (its configuration) are about 10 KB

STDOUT, STDERR, SYSTEM = 1, 2, 3  # stream types of a frame; 0 is stdin, 3 is the daemon's own message
_HEADER = struct.Struct(">BxxxI")  # stream type, three zero bytes, payload length
_LINE_END = re.compile(rb"\r\n|\n|\r")


class LineSplitter:
    """Lines of one byte stream. A line ends at LF, CR LF, or a CR (a progress bar that starts its line over).

    Empty lines that a CR makes are dropped. Bad UTF-8 is replaced (U+FFFD).
    """

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_bytes
        self._rest = bytearray()
        self._after_cr = False  # a LF that comes next belongs to the CR before it

    def feed(self, data: bytes) -> list[str]:
        """Given the next bytes, return the lines that they complete."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        lines = []
        start = 0
        for end in _LINE_END.finditer(data):
            self._rest += data[start : end.start()]
            start = end.end()
            lines += self._pieces()
            if self._rest or end.group() == b"\n":
                lines.append(self._take(len(self._rest)))
        self._after_cr = data.endswith(b"\r")
        self._rest += data[start:]
        return lines + self._pieces()

    def end(self) -> list[str]:
        """Return what is left when the stream ends: the last line, if it had no end."""
        return [self._take(len(self._rest))] if self._rest else []

    def _pieces(self) -> list[str]:
        """Cut pieces of the longest allowed size off an over-long line, never inside a UTF-8 character."""
        pieces = []
        while len(self._rest) > self._max:
            pieces.append(self._take(_character_start(self._rest, self._max)))
        return pieces

    def _take(self, size: int) -> str:
        text = self._rest[:size].decode("utf-8", "replace")
        del self._rest[:size]
        return text


def _character_start(data: bytearray, index: int) -> int:
    """Return the last index <= `index` at which a UTF-8 character starts; `index` when there is none in 3 bytes."""
    for back in range(4):
        if index > back and data[index - back] & 0xC0 != 0x80:
            return index - back
    return index


class FrameSplitter:
    """Frames of a container's multiplexed stdout and stderr, in any split of the bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Given the next bytes, return the complete frames as (type, payload). Raise `EngineError` on nonsense."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= _HEADER.size:
            kind, size = _HEADER.unpack_from(self._buffer)
            if kind > SYSTEM or any(self._buffer[1:4]):
                raise EngineError(f"not a container log: frame header {bytes(self._buffer[: _HEADER.size])!r}")
            end = _HEADER.size + size
            if len(self._buffer) < end:
                break
            frames.append((kind, bytes(self._buffer[_HEADER.size : end])))
            del self._buffer[:end]
        return frames


class LogLines:
    """A container's log bytes to lines. Parts of stdout and stderr stay apart; lines come in order of completion."""

    def __init__(self, *, tty: bool, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._frames = None if tty else FrameSplitter()
        self._lines = {STDOUT: LineSplitter(max_bytes), STDERR: LineSplitter(max_bytes)}

    def feed(self, data: bytes) -> list[str]:
        """Given the next bytes, return the lines they complete. Raise `EngineError` with what the daemon says."""
        frames = self._frames.feed(data) if self._frames else [(STDOUT, data)]
        lines = []
        for kind, payload in frames:
            if kind == SYSTEM:
                raise EngineError(f"the engine stopped the log: {payload.decode('utf-8', 'replace').strip()}")
            lines += self._lines[STDERR if kind == STDERR else STDOUT].feed(payload)
        return lines

    def end(self) -> list[str]:
        """Return the last lines when the log ends: those that had no end."""
        return self._lines[STDOUT].end() + self._lines[STDERR].end()
