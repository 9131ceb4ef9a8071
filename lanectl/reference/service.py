"""The paths the server answers, and the way from a request to the engine and back."""

from __future__ import annotations

import hmac
import itertools
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from lanectl.reference import VERSION
from lanectl.reference.bodies import BodyReader
from lanectl.reference.engine_client import EngineClient
from lanectl.reference.events import EventStream
from lanectl.reference.fields import ApiError
from lanectl.reference.generation import Generation
from lanectl.reference.http import Exchange
from lanectl.reference.messages import Abort, Audit, AuditReport, StepReport
from lanectl.reference.metrics import Metrics
from lanectl.reference.shapes import Payload, Shapes, encoded
from lanectl.reference.tokenizer import Tokenizer

_GENERATING = {"/v1/completions": False, "/v1/chat/completions": True}  # path -> whether it is a chat
_DEAD = ApiError(
    500, "EngineCore encountered an issue. See stack trace (above) for the root cause.", "InternalServerError"
)


@dataclass(frozen=True)
class Identity:
    """What the server says about itself."""

    names: list[str]
    max_model_len: int
    fingerprint: str
    started: int  # unix seconds
    api_keys: list[str]


class Service:
    """Routes requests. Everything here runs on the server's loop."""

    def __init__(
        self,
        identity: Identity,
        tokenizer: Tokenizer,
        metrics: Metrics,
        open_stream: Callable[[Exchange], EventStream] = EventStream,
    ) -> None:
        self._identity = identity
        self._tokenizer = tokenizer
        self._bodies = BodyReader(identity.names, tokenizer, identity.max_model_len)
        self._metrics = metrics
        self._open_stream = open_stream
        self._engine: EngineClient | None = None
        self._numbers = itertools.count(1)
        self._generations: dict[int, Generation] = {}  # by their requests' numbers
        self._audits: dict[int, Exchange] = {}  # who waits for the byte audit of that number
        self._simple: dict[str, Callable[[Exchange], None]] = {
            "/health": self._health,
            "/ping": self._health,
            "/version": lambda exchange: exchange.reply(200, encoded({"version": VERSION})),
            "/metrics": self._scrape,
            "/v1/models": self._models,
        }

    def use(self, engine: EngineClient) -> None:
        """Given the booted engine, hand generations to it."""
        self._engine = engine
        engine.deliver = self.deliver
        engine.audited = self._audited

    def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        request = exchange.request
        try:
            if request.path.startswith("/v1/") and not self._allowed(request.headers.get("authorization", "")):
                exchange.reply(401, encoded({"error": "Unauthorized"}))
            elif request.path in _GENERATING:
                _require(exchange, "POST")
                self._generate(exchange, chat=_GENERATING[request.path])
            elif request.path == "/audit":
                _require(exchange, "POST")
                self._audit(exchange)
            elif request.path in self._simple:
                _require(exchange, "GET")
                self._simple[request.path](exchange)
            else:
                exchange.reply(404, encoded({"detail": "Not Found"}))
        except ApiError as problem:
            exchange.reply(problem.status, encoded(problem.payload()))

    def deliver(self, report: StepReport) -> None:
        """Given what a step did, count it, then pass its tokens on."""
        self._metrics.record(report)
        for output in report.outputs:
            generation = self._generations.get(output.number)
            if generation is not None:
                if output.reason is not None:
                    del self._generations[output.number]
                generation.push(output.token, output.reason)

    def engine_died(self) -> None:
        """Every answer in the making ends with an error, and /health says 503 from now on."""
        for generation in list(self._generations.values()):
            generation.fail(_DEAD.payload())
        self._generations.clear()
        for exchange in self._audits.values():
            exchange.reply(500, encoded(_DEAD.payload()))
        self._audits.clear()

    def _audit(self, exchange: Exchange) -> None:
        engine = self._usable()
        number = next(self._numbers)
        self._audits[number] = exchange
        engine.audit(Audit(number))

    def _audited(self, report: AuditReport) -> None:
        found = [{"layer": layer, "expert": expert} for layer, expert in report.mismatched]
        answer = {
            "checked": report.checked,
            "mismatches": len(found),
            "mismatched": found,
            "moved": report.moved,
            "swaps": report.swaps,
            "elsewhere": report.elsewhere,
        }
        self._audits.pop(report.number).reply(200, encoded(answer))

    def _usable(self) -> EngineClient:
        """The engine, if it can be asked. Raise ApiError."""
        if self._engine is None:
            raise ApiError(503, "The engine is still loading.", "ServiceUnavailableError")
        if not self._engine.alive:
            raise _DEAD
        return self._engine

    def _generate(self, exchange: Exchange, chat: bool) -> None:
        engine = self._usable()
        asked = self._bodies.read(exchange.request.body, chat)
        prefix = "chatcmpl-" if chat else "cmpl-"
        answer_id = prefix + exchange.request.headers.get("x-request-id", secrets.token_hex(16))
        shapes = Shapes(chat, answer_id, int(time.time()), asked.model, self._identity.fingerprint)
        number = next(self._numbers)
        text = self._tokenizer.stream()
        generation = Generation(number, asked, exchange, shapes, text, self._open_stream, self._abort)
        self._generations[number] = generation
        self._metrics.arrived(generation.submit, time.monotonic())
        engine.submit(generation.submit)

    def _abort(self, abort: Abort) -> None:
        if self._generations.pop(abort.number, None) is not None and self._engine is not None:
            self._engine.abort(abort)

    def _allowed(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        keys = self._identity.api_keys
        given = token.encode("latin-1") if scheme.lower() == "bearer" else b""
        return not keys or any(hmac.compare_digest(given, key.encode()) for key in keys)

    def _health(self, exchange: Exchange) -> None:
        alive = self._engine is not None and self._engine.alive
        exchange.reply(200 if alive else 503, b"", "text/plain; charset=utf-8")

    def _scrape(self, exchange: Exchange) -> None:
        exchange.reply(200, self._metrics.text().encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _models(self, exchange: Exchange) -> None:
        cards: list[Payload] = [
            {
                "id": name,
                "object": "model",
                "created": self._identity.started,
                "owned_by": "lanectl",
                "root": name,
                "parent": None,
                "max_model_len": self._identity.max_model_len,
                "permission": [],
            }
            for name in self._identity.names
        ]
        exchange.reply(200, encoded({"object": "list", "data": cards}))


def _require(exchange: Exchange, method: str) -> None:
    if exchange.request.method != method:
        raise ApiError(405, "Method Not Allowed", "MethodNotAllowedError")
