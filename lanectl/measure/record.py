"""The record of one request: what came, when, and whether it counts. Pure; decided after the stream has ended.

A request is OK if and only if the answer was HTTP 200 with a finish reason, a usage, the closing [DONE], no error
object, and as many tokens in its chunks as the server says it generated. Anything else failed, with a reason: servers
report errors inside a 200, and a stream that was cut looks like a short answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from lanectl.core.stats import Sample
from lanectl.measure.answer import (
    SHOWN_OF_AN_ERROR,
    Answer,
    Chunk,
    TokenSource,
    count_of,
    read_answer,
    token_counts,
    token_source,
)
from lanectl.measure.client import Capture

# How a request may end and still count (source: OpenAI chat API). vLLM also has `abort` and `error`, which do not.
GOOD_ENDS = frozenset({"stop", "length", "tool_calls", "function_call"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked: the cell it belongs to, its id and its prompt."""

    cell: str
    request_id: str
    prompt_id: str
    prompt: str


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request, measured. All `t_…` are monotonic ns (None: never came); `chunks` are (ns since t_send, tokens).

    `chunks` has every chunk that carries a choice; tokens are 0 for one that brought none and None where the server
    does not say. `t_first_token`: the first chunk with content, reasoning, a tool call or token ids; `n_first` its
    tokens. `error` ("code: detail") is None if and only if the request is OK.
    """

    cell: str
    request_id: str
    prompt_id: str
    prompt_sha256: str
    t_sched: int | None
    t_send: int | None
    t_headers: int | None
    t_first_byte: int | None
    t_first_chunk: int | None
    t_first_token: int | None
    t_first_answer: int | None
    t_last_token: int | None
    t_done: int | None
    status: int | None
    chunks: tuple[tuple[int, int | None], ...]
    n_first: int | None
    token_source: TokenSource
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    cached_tokens: int | None
    finish_reason: str | None
    saw_usage: bool
    saw_done: bool
    fingerprint: str | None
    token_ids_sha256: str | None
    error: str | None

    @property
    def ok(self) -> bool:
        return self.error is None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def sample(self) -> Sample:
        """Return what the formulas need. Raise ValueError for a request that is not OK: it enters no rate."""
        times = (self.t_send, self.t_first_token, self.t_last_token, self.completion_tokens)
        if self.error is not None or None in times:
            raise ValueError(f"request {self.request_id} is not OK: {self.error}")
        send, first, last, tokens = (int(value or 0) for value in times)
        sized = self.token_source is not TokenSource.FINAL_USAGE
        return Sample(
            send_ns=send,
            first_ns=first,
            last_ns=last,
            tokens=tokens,
            first_tokens=self.n_first if sized else None,
            chunks=tuple((send + since, count) for since, count in self.chunks if count) if sized else (),
            answer_ns=self.t_first_answer,
        )


def read_capture(asked: Asked, capture: Capture) -> RequestRecord:
    """Given what was asked and what one exchange left behind, return its record, OK or failed with the first reason."""
    answer = read_answer(capture.reads)
    source = token_source(answer.chunks)
    counts = token_counts(answer.chunks, source)
    counted = list(zip(answer.chunks, counts, strict=True))
    bearing = [(chunk, count) for chunk, count in counted if count or chunk.has_text]
    usage = answer.usage or {}
    error = capture.failure or _http_failure(capture) or answer.error or _incomplete(answer, source, counts)
    return RequestRecord(
        cell=asked.cell,
        request_id=asked.request_id,
        prompt_id=asked.prompt_id,
        prompt_sha256=hashlib.sha256(asked.prompt.encode()).hexdigest(),
        t_sched=capture.t_sched,
        t_send=capture.t_send,
        t_headers=capture.t_headers,
        t_first_byte=capture.t_first_byte,
        t_first_chunk=answer.t_first_chunk,
        t_first_token=bearing[0][0].at_ns if bearing else None,
        t_first_answer=next((chunk.at_ns for chunk, _ in bearing if chunk.has_answer), None),
        t_last_token=bearing[-1][0].at_ns if bearing else None,
        t_done=capture.t_done,
        status=capture.status,
        chunks=tuple((chunk.at_ns - (capture.t_send or 0), count) for chunk, count in counted),
        n_first=bearing[0][1] if bearing else None,
        token_source=source,
        prompt_tokens=count_of(usage, "prompt_tokens"),
        completion_tokens=count_of(usage, "completion_tokens"),
        reasoning_tokens=count_of(usage.get("completion_tokens_details"), "reasoning_tokens"),
        cached_tokens=count_of(usage.get("prompt_tokens_details"), "cached_tokens"),
        finish_reason=answer.finish_reason,
        saw_usage=answer.usage is not None,
        saw_done=answer.saw_done,
        fingerprint=answer.fingerprint,
        token_ids_sha256=_token_ids_sha256(answer.chunks) if source is TokenSource.TOKEN_IDS else None,
        error=error,
    )


def _http_failure(capture: Capture) -> str | None:
    if capture.status == HTTPStatus.OK:
        return None
    words = capture.error_body.decode("utf-8", "replace").strip()
    return f"http: status {capture.status}" + (f": {words[:SHOWN_OF_AN_ERROR]}" if words else "")


def _incomplete(answer: Answer, source: TokenSource, counts: Sequence[int | None]) -> str | None:
    """Given a 200 answer without an error, return what is missing or contradictory in it, None when it is complete."""
    if not answer.saw_done:
        return "no_done: the stream ended without [DONE]"
    if answer.finish_reason is None:
        return "no_finish_reason: no chunk says why the answer ended"
    if answer.finish_reason not in GOOD_ENDS:
        return f"bad_finish: the server ended the answer with {answer.finish_reason!r}"
    total = count_of(answer.usage, "completion_tokens")
    if total is None:
        return "no_usage: the server did not say how many tokens it generated"
    if total < 1 or not any(count is None or count > 0 for count in counts):
        return f"no_tokens: the answer is empty ({total} tokens by the server's count)"
    if source is TokenSource.FINAL_USAGE:
        return None  # the chunks' tokens are unknown: there is nothing to compare
    sizes = [count or 0 for count in counts]
    if sum(sizes) != total or min(sizes) < 0:
        return f"token_mismatch: {sum(sizes)} tokens in the chunks, {total} by the server's count"
    return None


def _token_ids_sha256(chunks: Sequence[Chunk]) -> str:
    ids = [token for chunk in chunks for token in chunk.token_ids or ()]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()
