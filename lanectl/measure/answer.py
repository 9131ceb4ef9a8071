"""What a stream said: its events as chunks with arrival times and token counts. Pure; nothing here may raise.

A chunk is not a token. Under speculative decoding a step is one chunk of several tokens, parsers swallow text, writers
merge deltas. So the server is asked to say what each chunk brought, and which of its words was used is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lanectl.measure.sse import SseParser

SHOWN_OF_AN_ERROR = 300  # characters of a server's own words that fit a report line


class TokenSource(StrEnum):
    """Where the token count of each chunk came from, best first."""

    TOKEN_IDS = "token_ids"
    CONTINUOUS_USAGE = "continuous_usage"
    FINAL_USAGE = "final_usage"  # only the total is known


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk that carries a choice. `total`: the server's running token count on it, None where it gives none."""

    at_ns: int
    has_text: bool  # content, reasoning or a tool call
    has_answer: bool  # content or a tool call
    token_ids: tuple[int, ...] | None
    total: int | None


@dataclass(slots=True)
class Answer:
    """Everything a stream said up to [DONE], its end, or its first error (`error`: "code: detail")."""

    chunks: list[Chunk] = field(default_factory=list)
    t_first_chunk: int | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    fingerprint: str | None = None
    saw_done: bool = False
    error: str | None = None


class _BadStream(Exception):
    """What makes a 200 answer count as failed. The message is "code: detail"."""


def read_answer(reads: Sequence[tuple[int, bytes]]) -> Answer:
    """Given (arrival ns, bytes) of each read of a body, return what the stream said."""
    answer = Answer()
    try:
        for at_ns, data in _events(reads):
            if data == b"[DONE]":
                answer.saw_done = True
                break
            _take(answer, at_ns, data)
    except _BadStream as bad:
        answer.error = str(bad)
    return answer


def token_source(chunks: Sequence[Chunk]) -> TokenSource:
    """Return the best source that these chunks offer."""
    if any(chunk.token_ids is not None for chunk in chunks):
        return TokenSource.TOKEN_IDS
    # A total on the last chunk alone is not a running count.
    if any(chunk.total is not None for chunk in chunks[:-1]):
        return TokenSource.CONTINUOUS_USAGE
    return TokenSource.FINAL_USAGE


def token_counts(chunks: Sequence[Chunk], source: TokenSource) -> list[int | None]:
    """Return how many tokens each chunk brought. For FINAL_USAGE: 0 where it brought no text, else None (unknown)."""
    if source is TokenSource.TOKEN_IDS:
        return [len(chunk.token_ids or ()) for chunk in chunks]
    if source is TokenSource.FINAL_USAGE:
        return [None if chunk.has_text else 0 for chunk in chunks]
    counts: list[int | None] = []
    so_far = 0
    for chunk in chunks:
        total = so_far if chunk.total is None else chunk.total
        counts.append(total - so_far)
        so_far = total
    return counts


def count_of(holder: object, name: str) -> int | None:
    """Given a JSON object (or anything), return the whole number at `name`, None when there is none."""
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _events(reads: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield (arrival of the read that completed it, data) of each event."""
    parser = SseParser()
    for at_ns, piece in reads:
        for event in parser.feed(piece):
            if event.name == b"error":
                raise _BadStream(f"error_event: {_shown(event.data)}")
            yield at_ns, event.data


def _take(answer: Answer, at_ns: int, data: bytes) -> None:
    """Add one event's data to the answer. Raise _BadStream when it is an error or no chat chunk."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        raise _BadStream(f"bad_json: {_shown(data)}") from None
    if not isinstance(message, dict):
        raise _BadStream(f"bad_chunk: not an object: {_shown(data)}")
    if message.get("error"):
        raise _BadStream(f"error_event: {_shown(data)}")
    if answer.t_first_chunk is None:
        answer.t_first_chunk = at_ns
    fingerprint = message.get("system_fingerprint")
    answer.fingerprint = fingerprint if isinstance(fingerprint, str) else answer.fingerprint
    usage = message.get("usage") if isinstance(message.get("usage"), dict) else None
    choices = message.get("choices")
    if not choices:
        answer.usage = usage or answer.usage
        return
    choice = choices[0] if isinstance(choices, list) else None
    if not isinstance(choice, dict):
        raise _BadStream(f"bad_chunk: no choice in it: {_shown(data)}")
    finish_reason = choice.get("finish_reason")
    answer.finish_reason = finish_reason if isinstance(finish_reason, str) else answer.finish_reason
    answer.chunks.append(_chunk(at_ns, choice, usage))
    if answer.finish_reason is not None:
        answer.usage = usage or answer.usage  # some servers put the total on the last choice instead of after it


def _chunk(at_ns: int, choice: dict[str, Any], usage: dict[str, Any] | None) -> Chunk:
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        delta = {}
    token_ids = choice.get("token_ids")
    answers = bool(delta.get("content") or delta.get("tool_calls"))
    # `reasoning_content` became `reasoning` in vLLM (late 2025); a client that knows one name only sees nothing.
    thinks = bool(delta.get("reasoning") or delta.get("reasoning_content"))
    return Chunk(
        at_ns=at_ns,
        has_text=answers or thinks,
        has_answer=answers,
        token_ids=tuple(token_ids) if isinstance(token_ids, list) else None,
        total=count_of(usage, "completion_tokens"),
    )


def _shown(data: bytes) -> str:
    return data[:SHOWN_OF_AN_ERROR].decode("utf-8", "replace")
