"""Faults of event streams: what is sent, how it is cut up, and how it ends."""

from __future__ import annotations

import os
import signal

from lanectl.reference.events import EventStream
from lanectl.reference.faults import Faults, pieces_of
from lanectl.reference.http import Exchange
from lanectl.reference.shapes import Payload

_ERROR: Payload = {
    "error": {"message": "this failure was asked for", "type": "InternalServerError", "param": None, "code": 500}
}


class FaultyStream(EventStream):
    """An event stream that misbehaves as asked."""

    def __init__(self, exchange: Exchange, faults: Faults) -> None:
        self._faults = faults
        self._sent = 0
        self._over = False
        self._merge = faults.count("merge") or 1
        self._held: list[Payload] = []
        self.early_role = "early-role" in faults
        super().__init__(exchange)

    def role(self, payload: Payload) -> None:
        if "no-role" not in self._faults:
            super().role(payload)

    def text(self, payload: Payload) -> None:
        if self._over:
            return
        self._held.append(payload)
        last = payload["choices"][0]["finish_reason"] is not None
        if len(self._held) < self._merge and not last:
            return
        merged = _merged(self._held)
        self._held = []
        super().text(self._disguised(merged))
        self._sent += 1
        self._end_early()

    def usage(self, payload: Payload) -> None:
        if "no-usage" in self._faults:
            return
        payload["usage"]["completion_tokens"] += self._faults.count("wrong-usage") or 0
        super().usage(payload)

    def done(self) -> None:
        if not self._over:
            super().done()

    def event(self, payload: Payload) -> None:
        if not self._over:
            super().event(payload)

    def _send(self, data: bytes) -> None:
        pieces = pieces_of(data) if "split-writes" in self._faults else [data]
        for piece in pieces:
            super()._send(piece)

    def frame(self, data: bytes) -> bytes:
        end = b"\r\n\r\n" if "crlf" in self._faults else b"\n\n"
        mark = b"data:" if "no-space" in self._faults else b"data: "
        comment = b": keep-alive" + end if "comments" in self._faults else b""
        return comment + mark + data + end

    def _end_early(self) -> None:
        if self._sent == self._faults.count("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._sent == self._faults.count("error-at"):
            if self.exchange.on_gone is not None:
                self.exchange.on_gone()  # the engine need not go on
            self.event(_ERROR)
            self.done()
            self._over = True
        elif self._sent == self._faults.count("cut"):
            self._over = True
            self.exchange.cut()

    def _disguised(self, payload: Payload) -> Payload:
        choice = payload["choices"][0]
        body = choice.get("delta", choice)
        name = "content" if "delta" in choice else "text"
        if "u2028" in self._faults:
            body[name] += "\u2028"
        if "delta" in choice:
            for kind, other in (("reasoning", "reasoning"), ("old-reasoning", "reasoning_content")):
                if kind in self._faults:
                    body[other] = body.pop(name)
                    break
        return payload


def _merged(chunks: list[Payload]) -> Payload:
    """Given chunks of one answer, return one with the text and token ids of all of them."""
    last = chunks[-1]
    choice = last["choices"][0]
    body, name = (choice["delta"], "content") if "delta" in choice else (choice, "text")
    bodies = [chunk["choices"][0].get("delta", chunk["choices"][0]) for chunk in chunks]
    body[name] = "".join(each[name] for each in bodies)
    if "token_ids" in choice:
        choice["token_ids"] = [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]]
    return last
