"""The HTTP rungs of the readiness ladder, asked of a real server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NoReturn

from lanectl.core.health import HttpSample, HttpTarget, Kind, Rung
from lanectl.core.log_lines import one_line
from lanectl.core.serving import Completion
from lanectl.ports import PortOwner
from lanectl.probes import ports
from lanectl.probes.exchange import Answer, NoAnswer, Server, ask

PROMPT = "The capital of France is"  # base models continue it, chat models answer it
MODELS, COMPLETIONS, CHAT = "/v1/models", "/v1/completions", "/v1/chat/completions"
# How servers say that they have no /v1/completions for this model (chat only); then chat is asked, once.
_NO_SUCH_ENDPOINT = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
)
_AUTH = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class HttpProber:
    """The `Prober` port over real sockets and /proc."""

    def http(self, target: HttpTarget) -> HttpSample:
        """Climb health, authentication, /v1/models and a completion; return what the first failing rung saw.

        `target.base_url` must be http(s)://host[:port][/prefix].
        """
        return _Climb(target).sample()

    def port(self, host: str, port: int) -> PortOwner:
        return ports.port_owner(host, port)

    def can_bind(self, host: str, port: int) -> bool:
        return ports.can_bind(host, port)


class _RungFailed(Exception):
    def __init__(self, rung: Rung, kind: Kind, detail: str, status: int | None = None) -> None:
        super().__init__(detail)
        self.rung = rung
        self.kind = kind
        self.detail = detail
        self.status = status


class _Climb:
    """One climb; what the lower rungs learned is kept for the sample of the rung that fails."""

    def __init__(self, target: HttpTarget) -> None:
        self._target = target
        self._server = Server(target.base_url, target.api_key, target.connect_within_s)
        self._listed: tuple[str, ...] = ()
        self._model = target.model
        self._seconds: float | None = None

    def sample(self) -> HttpSample:
        try:
            self._climb()
        except _RungFailed as failed:
            return self._seen(failed.detail, failed.rung, failed.kind, failed.status)
        return self._seen(self._praise())

    def _climb(self) -> None:
        target = self._target
        self._check_key()
        if target.health is not None:
            self._get(Rung.HEALTH, target.health, target.health_status)
        if target.models or (target.completion is not None and target.model is None):
            self._check_models(self._get(Rung.MODELS, MODELS))
        if target.completion is not None:
            self._complete(target.completion)

    def _check_key(self) -> None:
        key = self._target.api_key
        if key and not (key.isascii() and key.isprintable()):
            raise _RungFailed(Rung.AUTH, Kind.AUTH, "the API key holds characters that no HTTP header may carry")

    def _get(self, rung: Rung, path: str, wanted: int = HTTPStatus.OK) -> Answer:
        answer = self._ask(rung, path, time.monotonic() + self._target.answer_within_s)
        if answer.status != wanted:
            self._reject(rung, path, answer, wanted)
        return answer

    def _ask(self, rung: Rung, path: str, deadline: float, body: Mapping[str, Any] | None = None) -> Answer:
        try:
            return ask(self._server, path, deadline, body)
        except NoAnswer as failure:
            raise _RungFailed(rung if failure.connected else Rung.PORT, failure.kind, failure.detail) from None

    def _check_models(self, answer: Answer) -> None:
        listed = answer.fields().get("data")
        if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
            raise _RungFailed(Rung.MODELS, Kind.BAD_ANSWER, f"{MODELS} does not answer with a list of models", 200)
        lengths = {str(entry.get("id")): entry.get("max_model_len") for entry in listed}
        self._listed = tuple(one_line(name) for name in lengths)
        if self._model is None:
            self._model = next(iter(lengths), None)
        wanted = self._target.max_model_len
        if self._model not in lengths:
            names = ", ".join(self._listed) or "no model"
            detail = f"{MODELS} lists {names}; expected {self._model or 'at least one'}"
        elif wanted is not None and lengths[self._model] != wanted:
            detail = f"{MODELS} lists {self._model} with max_model_len {lengths[self._model]}; expected {wanted}"
        else:
            return
        raise _RungFailed(Rung.MODELS, Kind.WRONG_MODEL, detail, answer.status)

    def _complete(self, completion: Completion) -> None:
        """Ask for a real completion. Both endpoints share the one deadline: it is the operator's word."""
        started = time.monotonic()
        deadline = started + completion.within_s
        common: dict[str, Any] = {"model": self._model, "max_tokens": completion.max_tokens, "temperature": 0}
        path = COMPLETIONS
        answer = self._ask(Rung.COMPLETION, path, deadline, common | {"prompt": PROMPT})
        if answer.status in _NO_SUCH_ENDPOINT:
            path = CHAT
            messages = [{"role": "user", "content": PROMPT}]
            answer = self._ask(Rung.COMPLETION, path, deadline, common | {"messages": messages})
        if answer.status != HTTPStatus.OK:
            self._reject(Rung.COMPLETION, path, answer, HTTPStatus.OK)
        if not has_token(answer.fields()):
            detail = f"{path} answers 200 and generated nothing{_server_words(answer)}"
            raise _RungFailed(Rung.COMPLETION, Kind.NO_TOKEN, detail, answer.status)
        self._seconds = time.monotonic() - started

    def _reject(self, rung: Rung, path: str, answer: Answer, wanted: int) -> NoReturn:
        status, words = answer.status, _server_words(answer)
        if status in _AUTH:
            key = "the API key is not accepted" if self._target.api_key else "an API key is asked for, none was sent"
            raise _RungFailed(Rung.AUTH, Kind.AUTH, f"{path} answers {status}: {key}{words}", status)
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            raise _RungFailed(rung, Kind.REDIRECT, f"{path} redirects ({status}) to {answer.location or '?'}", status)
        kind = Kind.WRONG_MODEL if _blames_model(answer) else Kind.STATUS
        raise _RungFailed(rung, kind, f"{path} answers {status}, expected {wanted:d}{words}", status)

    def _praise(self) -> str:
        if self._seconds is not None:
            return f"{self._model} completed in {self._seconds:.2f} s"
        return f"{MODELS} lists {self._model}" if self._listed else "answers"

    def _seen(
        self, detail: str, failed: Rung | None = None, kind: Kind = Kind.NONE, status: int | None = None
    ) -> HttpSample:
        key = self._target.api_key
        clean = one_line(detail.replace(key, "***") if key else detail)  # an error text may echo what was sent
        model = one_line(self._model) if self._model is not None else None
        return HttpSample(failed, kind, status, clean, self._listed, model, self._seconds)


def has_token(completion: Mapping[str, Any]) -> bool:
    """Given the JSON of a completion (either endpoint), return whether a token was generated.

    A token can be invisible (half a multi-byte character, an end-of-text token), so the server's own count decides
    first, then any text, reasoning or token ids. An error object or no choice is no completion, whatever its status.
    """
    choices, usage = completion.get("choices"), completion.get("usage")
    if completion.get("error") or not isinstance(choices, list) or not choices:
        return False
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if isinstance(counted, int) and counted >= 1:
        return True
    return any(_says_something(choice) for choice in choices)


def _says_something(choice: object) -> bool:
    if not isinstance(choice, dict):
        return False
    message = choice.get("message")
    said = [choice.get("text"), choice.get("token_ids")]
    if isinstance(message, dict):
        said += [message.get(key) for key in ("content", "reasoning", "reasoning_content", "tool_calls")]
    return any(said)


def _error_of(answer: Answer) -> Mapping[str, Any]:
    """Return the error object: under `error` as OpenAI has it, or the body itself as older vLLM did."""
    fields = answer.fields()
    error = fields.get("error")
    return error if isinstance(error, dict) else fields


def _blames_model(answer: Answer) -> bool:
    """Whether the error names the model as its cause, in the fields OpenAI and vLLM use (never judged by its text)."""
    error = _error_of(answer)
    return error.get("param") == "model" or error.get("code") == "model_not_found"


def _server_words(answer: Answer) -> str:
    message = _error_of(answer).get("message")
    return f": {message}" if isinstance(message, str) and message else ""
