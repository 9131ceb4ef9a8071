"""Continuous batching: which requests run, and what each step computes.

Requests are admitted in the order they came, while there is a seat and a run of cache blocks for the whole of
them. A step computes one token for every request that is writing, and as much of the waiting prompts as the token
budget leaves room for; requests join and leave between steps.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from lanectl.reference.kv import BLOCK_SIZE, KvCache, block_keys
from lanectl.reference.model import Model, Rows
from lanectl.reference.sampling import Sampler, Sampling
from lanectl.reference.tokenizer import END
from lanectl.reference.weights import Floats


@dataclass(eq=False)
class Request:
    """One prompt and what has become of it. Times are of the monotonic clock, in seconds."""

    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    cache_salt: str = ""
    arrived: float = field(default_factory=time.monotonic)
    admitted: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    written: int = 0
    cached_tokens: int = 0
    tokens: list[int] = field(default_factory=list)  # prompt, then what was written
    computed: int = 0  # how many of `tokens` have their keys and values in the cache
    slot: int = -1
    sampler: Sampler | None = None


@dataclass(frozen=True)
class Output:
    """One token of one request; `reason` when it is the last one ("stop" or "length")."""

    request: Request
    token: int
    reason: str | None


@dataclass(frozen=True)
class StepReport:
    """What one step did, and how things stand after it."""

    at: float
    outputs: list[Output]
    aborted: list[tuple[Request, str]]
    prompt_tokens: int  # prompt tokens computed in this step
    cache_queries: int  # prompt tokens looked up in the prefix cache at admission
    cache_hits: int  # of these, found
    running: int
    waiting: int
    cache_use: float  # 0 … 1
    stepped: bool  # False when there was nothing to compute


class Scheduler:
    """Owns the requests, the cache and the model; used by one thread."""

    def __init__(self, model: Model, cache: KvCache, max_num_seqs: int, token_budget: int) -> None:
        self._model = model
        self._cache = cache
        self._max_num_seqs = max_num_seqs
        self._budget = token_budget
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._aborted: list[tuple[Request, str]] = []

    @property
    def busy(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self._running or self._waiting)

    def submit(self, request: Request) -> None:
        """Given a new request, put it at the end of the queue."""
        request.tokens = list(request.prompt)
        if not request.sampling.plain:
            request.sampler = Sampler(request.sampling)
        self._waiting.append(request)

    def abort(self, request: Request, reason: str) -> None:
        """Given a request and a reason, forget it, wherever it is. Nothing happens if it is finished already."""
        if request in self._running:
            self._leave(request)
        elif request in self._waiting:
            self._waiting.remove(request)
        else:
            return
        self._aborted.append((request, reason))

    def step(self) -> StepReport:
        """Admit, compute one step, and return what came of it."""
        queries, hits = self._admit()
        chunks = self._plan()
        outputs: list[Output] = []
        if chunks:
            ending = [(request, at) for request, at in _last_rows(chunks) if request.computed == len(request.tokens)]
            logits = self._compute(chunks, [at for _, at in ending])
            outputs = self._choose([request for request, _ in ending], logits)
        aborted, self._aborted = self._aborted, []
        return StepReport(
            at=time.monotonic(),
            outputs=outputs,
            aborted=aborted,
            prompt_tokens=sum(count for request, start, count in chunks if start < len(request.prompt)),
            cache_queries=queries,
            cache_hits=hits,
            running=len(self._running),
            waiting=len(self._waiting),
            cache_use=self._cache.used_blocks / self._cache.blocks,
            stepped=bool(chunks),
        )

    def _admit(self) -> tuple[int, int]:
        """Seat waiting requests. Return the prompt tokens looked up in the prefix cache, and those found there."""
        queries = hits = 0
        while self._waiting and len(self._running) < self._max_num_seqs:
            request = self._waiting[0]
            slot = self._cache.reserve(len(request.prompt) + request.max_tokens)
            if slot is None:
                break
            self._waiting.popleft()
            self._running.append(request)
            request.slot = slot
            request.admitted = time.monotonic()
            # The last prompt token is always computed: its logits are the first answer.
            keys = block_keys(request.prompt, request.cache_salt)[: (len(request.prompt) - 1) // BLOCK_SIZE]
            request.cached_tokens = request.computed = self._cache.reuse(slot, keys)
            queries += len(request.prompt)
            hits += request.cached_tokens
        return queries, hits

    def _plan(self) -> list[tuple[Request, int, int]]:
        """The step's work: (request, first position, count), writers first, then prompts within the budget."""
        writing = [request for request in self._running if request.written]
        chunks = [(request, request.computed, 1) for request in writing]
        left = max(self._budget - len(writing), 1)
        for request in self._running:
            if not request.written and left > 0:
                count = min(len(request.prompt) - request.computed, left)
                chunks.append((request, request.computed, count))
                left -= count
        for request, _, count in chunks:
            request.computed += count
        return chunks

    def _compute(self, chunks: list[tuple[Request, int, int]], wanted: list[int]) -> Floats:
        tokens: list[int] = []
        positions: list[int] = []
        bases: list[int] = []
        for request, start, count in chunks:
            tokens += request.tokens[start : start + count]
            positions += range(start, start + count)
            bases += [request.slot] * count
        at = np.array(positions)
        rows = Rows(np.array(tokens), at, at + np.array(bases), bases)
        return self._model.forward(rows, self._cache, np.array(wanted, np.intp))

    def _choose(self, requests: list[Request], logits: Floats) -> list[Output]:
        """Given the requests whose next token is due and their logits, write the tokens down."""
        now = time.monotonic()
        outputs = []
        greedy = logits.argmax(axis=1).tolist()
        for row, request in enumerate(requests):
            token = greedy[row]
            if request.sampler is not None:
                token = request.sampler.choose(logits[row], request.written)
            if request.written == 0:
                request.first_token = now
                self._cache.remember(request.slot, block_keys(request.prompt, request.cache_salt))
            request.last_token = now
            request.written += 1
            request.tokens.append(token)
            reason = None
            if token == END and not request.sampling.ignore_eos:
                reason = "stop"
            elif request.written >= request.max_tokens:
                reason = "length"
            if reason is not None:
                self._leave(request)
            outputs.append(Output(request, token, reason))
        return outputs

    def _leave(self, request: Request) -> None:
        self._running.remove(request)
        self._cache.remember(request.slot, block_keys(request.tokens[: request.computed], request.cache_salt))
        self._cache.release(request.slot)


def _last_rows(chunks: list[tuple[Request, int, int]]) -> list[tuple[Request, int]]:
    """The index of each chunk's last row."""
    rows = []
    end = 0
    for request, _, count in chunks:
        end += count
        rows.append((request, end - 1))
    return rows
