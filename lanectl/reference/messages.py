"""What the server's process and the engine's process say to each other, and how it is put into bytes.

The two are connected by a socket pair. A message is its length and its pickle: both ends are the same program,
and nothing else can reach the socket. Times are of the system's monotonic clock, in seconds.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Sampling:
    """How a request wants its tokens chosen. Temperature 0 is greedy; top_k 0 means no limit."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    logit_bias: dict[int, float] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Whether the largest logit is the answer, always."""
        return self.temperature == 0.0 and not self.logit_bias and self.min_tokens == 0


class Submit(NamedTuple):
    """To the engine: run this request. Its number is used once."""

    number: int
    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    cache_salt: str


class Abort(NamedTuple):
    """To the engine: forget this request, if it is not finished."""

    number: int
    reason: str


class Audit(NamedTuple):
    """To the engine: run the byte audit. Its number is used once, and by no request."""

    number: int


class AuditReport(NamedTuple):
    """From the engine: what the audit of that number found; `mismatched` as (layer, expert)."""

    number: int
    checked: int
    mismatched: list[tuple[int, int]]
    moved: int
    elsewhere: int
    swaps: int


class BootLine(NamedTuple):
    """From the engine: a line for the boot log, as vLLM's logger writes it."""

    text: str


class PlainLine(NamedTuple):
    """From the engine: a line for the log as it is, as the published hooks print theirs."""

    text: str


class Ready(NamedTuple):
    """From the engine: it can take requests. The cache's configuration is as /metrics shows it."""

    cache_config: dict[str, str]


class Refused(NamedTuple):
    """From the engine: it cannot be made with these settings, and why."""

    reason: str


class Output(NamedTuple):
    """One token of one request. `reason` is "stop" or "length" with the last one, else None."""

    number: int
    token: int
    reason: str | None


class Admission(NamedTuple):
    """A request was given a seat: when, and how many of its prompt tokens were in the prefix cache."""

    number: int
    at: float
    cached_tokens: int


class StepReport(NamedTuple):
    """From the engine: what one step did, and how things stand after it."""

    at: float
    outputs: list[Output]
    admissions: list[Admission]
    aborted: list[Abort]
    prompt_tokens: int  # prompt tokens computed in this step
    running: int
    waiting: int
    cache_use: float  # 0 … 1
    stepped: bool  # False when there was nothing to compute
    swaps: int  # experts that changed places with others since the boot


def packed(message: tuple[Any, ...]) -> bytes:
    """Given a message, return its bytes."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


class Unpacker:
    """Finds messages in a stream of bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Given the next bytes, return the messages that are complete now."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            message = pickle.loads(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield message
