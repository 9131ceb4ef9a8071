"""Server-sent events, byte by byte.

Source of the rules: the WHATWG HTML standard, section "Server-sent events" (event stream interpretation). A stream is
parsed as bytes and never as text: vLLM writes U+2028, U+2029 and U+0085 unescaped inside JSON, and readers that
split lines on Unicode line ends break there; readers that strip lose a space that a read boundary happens to touch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: `data` is its data lines joined by a line feed, untouched; `name` the `event:` field, else empty."""

    data: bytes
    name: bytes = b""


class SseParser:
    """Turns a byte stream, cut anywhere, into events. However the stream is cut, the events are the same."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._name = b""
        self._at_start = True
        self._ended_in_cr = False

    def feed(self, piece: bytes) -> list[Event]:
        """Given the next bytes, return the events that they complete (an empty line completes an event).

        An event that the stream's end leaves without its empty line is never returned, as the standard says.
        """
        if self._ended_in_cr and piece:
            piece = piece.removeprefix(b"\n")  # the second half of a \r\n that a read boundary cut
            self._ended_in_cr = False
        text = self._rest + piece
        if self._at_start:
            if len(text) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(text):
                self._rest = text
                return []
            text = text.removeprefix(_BYTE_ORDER_MARK)
            self._at_start = False

        events: list[Event] = []
        start = 0
        for end in _LINE_END.finditer(text):
            event = self._line(text[start : end.start()])
            if event is not None:
                events.append(event)
            start = end.end()
        self._rest = text[start:]
        self._ended_in_cr = text.endswith(b"\r")
        return events

    def _line(self, line: bytes) -> Event | None:
        """Given one line without its end, return the event it completes, None when it completes none."""
        if not line:
            event = Event(b"\n".join(self._data), self._name) if self._data else None
            self._data, self._name = [], b""
            return event
        field, _, value = line.partition(b":")  # a comment has an empty field name and is ignored below
        value = value.removeprefix(b" ")  # one space, no more: the rest belongs to the value
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        return None
