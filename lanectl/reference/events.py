"""Server-sent events over one exchange."""

from __future__ import annotations

from lanectl.reference.http import Exchange
from lanectl.reference.shapes import Payload, encoded


class EventStream:
    """Writes one answer as events. `early_role` says whether a chat's role chunk goes out before the first token."""

    early_role = False

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        exchange.open("text/event-stream; charset=utf-8")

    def role(self, payload: Payload) -> None:
        """Send a chat's role chunk."""
        self.event(payload)

    def text(self, payload: Payload) -> None:
        """Send a chunk that carries tokens."""
        self.event(payload)

    def usage(self, payload: Payload) -> None:
        """Send the usage chunk."""
        self.event(payload)

    def done(self) -> None:
        """Send the end mark and end the answer."""
        self._send(self.frame(b"[DONE]"))
        self.exchange.finish()

    def event(self, payload: Payload) -> None:
        """Send one object."""
        self._send(self.frame(encoded(payload)))

    def _send(self, data: bytes) -> None:
        self.exchange.send(data)

    def frame(self, data: bytes) -> bytes:
        """Given an event's data, return its bytes on the wire."""
        return b"data: " + data + b"\n\n"
