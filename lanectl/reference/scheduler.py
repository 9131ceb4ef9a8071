"""Continuous batching: which requests run, and what each step computes.

Requests are admitted in the order they came, while there is a seat and a run of cache blocks for the whole of
them. A step computes one token for every request that is writing, and as much of the waiting prompts as the token
budget leaves room for; requests join and leave between steps.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from lanectl.reference.kv import BLOCK_SIZE, KvCache, block_keys
from lanectl.reference.messages import Abort, Admission, Output, StepReport, Submit
from lanectl.reference.model import Model, Rows
from lanectl.reference.residency import Residency
from lanectl.reference.sampling import Sampler
from lanectl.reference.tokenizer import END
from lanectl.reference.weights import Floats


class _Request:
    """One request and what has become of it."""

    def __init__(self, submit: Submit) -> None:
        self.asked = submit
        self.tokens = list(submit.prompt)  # the prompt, then what was written
        self.computed = 0  # how many of `tokens` have their keys and values in the cache
        self.slot = -1  # where its run in the cache begins
        self.sampler = None if submit.sampling.plain else Sampler(submit.sampling)

    @property
    def written(self) -> int:
        return len(self.tokens) - len(self.asked.prompt)

    def keys(self) -> list[bytes]:
        """The keys of its blocks that are computed."""
        return block_keys(self.tokens[: self.computed], self.asked.cache_salt)


_Chunk = tuple[_Request, int, int]  # a request, the first position to compute, how many


class Scheduler:
    """Owns the requests, the cache and the model."""

    def __init__(
        self, model: Model, cache: KvCache, max_num_seqs: int, token_budget: int, residency: Residency | None = None
    ) -> None:
        self._model = model
        self._cache = cache
        self._max_num_seqs = max_num_seqs
        self._budget = token_budget
        self._residency = residency
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._aborted: list[Abort] = []

    @property
    def busy(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self._running or self._waiting)

    def submit(self, submit: Submit) -> None:
        """Given a new request, put it at the end of the queue."""
        self._waiting.append(_Request(submit))

    def abort(self, abort: Abort) -> None:
        """Given whom to forget, do so, wherever it is. Nothing happens if it is finished already."""
        for request in [*self._running, *self._waiting]:
            if request.asked.number == abort.number:
                if request in self._running:
                    self._leave(request)
                else:
                    self._waiting.remove(request)
                self._aborted.append(abort)

    def step(self) -> StepReport:
        """Admit, compute one step, and return what came of it."""
        if self._residency is not None:
            self._residency.settle()
        admissions = self._admit()
        chunks = self._plan()
        outputs = self._choose(*self._compute(chunks)) if chunks else []
        aborted, self._aborted = self._aborted, []
        return StepReport(
            at=time.monotonic(),
            outputs=outputs,
            admissions=admissions,
            aborted=aborted,
            prompt_tokens=sum(count for request, start, count in chunks if start < len(request.asked.prompt)),
            running=len(self._running),
            waiting=len(self._waiting),
            cache_use=self._cache.used_blocks / self._cache.blocks,
            stepped=bool(chunks),
            swaps=self._residency.swaps if self._residency is not None else 0,
        )

    def _admit(self) -> list[Admission]:
        """Seat waiting requests, and take over what the prefix cache has of their prompts."""
        admissions = []
        while self._waiting and len(self._running) < self._max_num_seqs:
            request = self._waiting[0]
            asked = request.asked
            slot = self._cache.reserve(len(asked.prompt) + asked.max_tokens)
            if slot is None:
                break
            self._waiting.popleft()
            self._running.append(request)
            request.slot = slot
            # The last prompt token is always computed: its logits are the first answer.
            usable = (len(asked.prompt) - 1) // BLOCK_SIZE
            request.computed = self._cache.reuse(slot, block_keys(asked.prompt, asked.cache_salt)[:usable])
            admissions.append(Admission(asked.number, time.monotonic(), request.computed))
        return admissions

    def _plan(self) -> list[_Chunk]:
        """The step's work: writers first, then prompts within the budget."""
        writing = [request for request in self._running if request.written]
        chunks = [(request, request.computed, 1) for request in writing]
        left = max(self._budget - len(writing), 1)
        for request in self._running:
            if not request.written and left > 0:
                count = min(len(request.tokens) - request.computed, left)
                chunks.append((request, request.computed, count))
                left -= count
        return chunks

    def _compute(self, chunks: list[_Chunk]) -> tuple[list[_Request], Floats]:
        """Compute the chunks. Return the requests whose next token is due, and their logits."""
        tokens: list[int] = []
        positions: list[int] = []
        bases: list[int] = []
        due: list[_Request] = []
        last_rows: list[int] = []
        for request, start, count in chunks:
            tokens += request.tokens[start : start + count]
            positions += range(start, start + count)
            bases += [request.slot] * count
            request.computed += count
            if request.computed == len(request.tokens):
                due.append(request)
                last_rows.append(len(tokens) - 1)
        at = np.array(positions)
        rows = Rows(np.array(tokens), at, at + np.array(bases), bases)
        return due, self._model.forward(rows, self._cache, np.array(last_rows, np.intp))

    def _choose(self, due: list[_Request], logits: Floats) -> list[Output]:
        """Given the requests whose next token is due and their logits, write the tokens down."""
        outputs = []
        greedy = logits.argmax(axis=1).tolist()
        for row, request in enumerate(due):
            token = greedy[row] if request.sampler is None else request.sampler.choose(logits[row], request.written)
            if not request.written:
                self._cache.remember(request.slot, request.keys())
            request.tokens.append(token)
            reason = None
            if token == END and not request.asked.sampling.ignore_eos:
                reason = "stop"
            elif request.written >= request.asked.max_tokens:
                reason = "length"
            if reason is not None:
                self._leave(request)
            outputs.append(Output(request.asked.number, token, reason))
        return outputs

    def _leave(self, request: _Request) -> None:
        self._running.remove(request)
        self._cache.remember(request.slot, request.keys())
        self._cache.release(request.slot)
