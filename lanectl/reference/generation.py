"""One answer in the making: tokens come in from the engine, chunks or a whole answer go out."""

from __future__ import annotations

from collections.abc import Callable

from lanectl.reference.bodies import Asked
from lanectl.reference.events import EventStream
from lanectl.reference.http import Exchange
from lanectl.reference.messages import Abort, Submit
from lanectl.reference.shapes import Payload, Shapes, encoded, usage
from lanectl.reference.tokenizer import Detokenizer


class Text:
    """The text of an answer as it grows; ends at the first stop string, which is not part of it."""

    def __init__(self, detokenizer: Detokenizer, stops: tuple[str, ...]) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self._hold = max(map(len, stops), default=1) - 1  # characters that may be the beginning of a stop string
        self._tail = ""
        self.stopped = False

    def push(self, token: int, last: bool) -> str:
        """Given the next token, and whether it is the last, return the text that is certain now."""
        self._tail += self._detokenizer.push(token)
        if last:
            self._tail += self._detokenizer.flush()
        places = [at for stop in self._stops if (at := self._tail.find(stop)) >= 0]
        if places:
            self.stopped = True
            return self._tail[: min(places)]
        certain = len(self._tail) if last else max(len(self._tail) - self._hold, 0)
        text, self._tail = self._tail[:certain], self._tail[certain:]
        return text


class Generation:
    """Turns one request's tokens into its answer. `abort` is called when the engine need not go on."""

    def __init__(
        self,
        number: int,
        asked: Asked,
        exchange: Exchange,
        shapes: Shapes,
        detokenizer: Detokenizer,
        open_stream: Callable[[Exchange], EventStream],
        abort: Callable[[Abort], None],
    ) -> None:
        self.submit = Submit(number, asked.prompt, asked.max_tokens, asked.sampling, asked.cache_salt)
        self._asked = asked
        self._exchange = exchange
        self._shapes = shapes
        self._abort = abort
        self._text = Text(detokenizer, asked.stop)
        self._tokens: list[int] = []
        self._written: list[str] = []
        exchange.on_gone = lambda: abort(Abort(number, "abort"))
        self._stream = open_stream(exchange) if asked.stream else None
        self._role_due = asked.chat
        if self._stream is not None and self._stream.early_role:
            self._send_role(self._stream)

    def push(self, token: int, reason: str | None) -> None:
        """Given the next token, and the reason if it is the last, send what can be sent."""
        self._tokens.append(token)
        text = self._text.push(token, last=reason is not None)
        if self._text.stopped:
            if reason is None:
                self._abort(Abort(self.submit.number, "stop"))
            reason = "stop"
        if self._stream is None:
            self._written.append(text)
            if reason is not None:
                self._exchange.reply(200, encoded(self._whole(reason)))
            return
        self._send_role(self._stream)
        chunk = self._shapes.text_chunk(text, reason, [token] if self._asked.return_token_ids else None)
        if self._asked.continuous_usage:
            chunk["usage"] = self._usage()
        self._stream.text(chunk)
        if reason is not None:
            self._end(self._stream)

    def fail(self, payload: Payload) -> None:
        """The engine is dead: say so."""
        if self._stream is None:
            self._exchange.reply(500, encoded(payload))
        else:
            self._stream.event(payload)
            self._stream.done()

    def _send_role(self, stream: EventStream) -> None:
        if not self._role_due:
            return
        self._role_due = False
        chunk = self._shapes.role_chunk()
        if self._asked.return_token_ids:
            chunk["prompt_token_ids"] = self._asked.prompt
        if self._asked.continuous_usage:
            chunk["usage"] = usage(len(self._asked.prompt), 0)
        stream.role(chunk)

    def _end(self, stream: EventStream) -> None:
        if self._asked.include_usage:
            stream.usage(self._shapes.usage_chunk(self._usage()))
        stream.done()

    def _whole(self, reason: str) -> Payload:
        ids = self._asked.return_token_ids
        return self._shapes.whole(
            "".join(self._written),
            reason,
            self._asked.prompt if ids else None,
            self._tokens if ids else None,
            self._usage(),
        )

    def _usage(self) -> Payload:
        return usage(len(self._asked.prompt), len(self._tokens))
