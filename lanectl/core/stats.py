"""The formulas behind every published number, as pure functions. Each docstring begins with the formula's id.

A row that carries a number carries the id of its formula, because tools use the same words for different quantities:
never compare a number with another tool's without comparing the formulas.

Times are nanoseconds of one monotonic clock, results are tokens per second, milliseconds or seconds as each says.
None means "cannot be told" (nothing to measure), never 0. Arguments that no measurement can produce raise ValueError.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One successful request, as the formulas need it.

    `send_ns`: just before the request's first byte was written. `first_ns`, `last_ns`: arrival of the first and the
    last token-bearing chunk. `tokens`: what the server counted (usage.completion_tokens). `first_tokens`: tokens in the
    first token-bearing chunk. `chunks`: (arrival ns, tokens) of every token-bearing chunk, in order. `first_tokens` is
    None and `chunks` empty when the server does not say how many tokens a chunk brought. `answer_ns`: arrival of the
    first token that is not reasoning, None when there was none.
    """

    send_ns: int
    first_ns: int
    last_ns: int
    tokens: int
    first_tokens: int | None = None
    chunks: tuple[tuple[int, int], ...] = ()
    answer_ns: int | None = None

    def __post_init__(self) -> None:
        if not self.send_ns <= self.first_ns <= self.last_ns:
            raise ValueError(f"times out of order: {self.send_ns}, {self.first_ns}, {self.last_ns}")
        if self.tokens < 1:
            raise ValueError(f"a successful request has at least one token, not {self.tokens}")


def decode_tps(sample: Sample) -> float | None:
    """decode_tps: (out - n_first) / (t_last_token - t_first_token), tokens per second.

    None when the chunk sizes are unknown or nothing came after the first chunk.
    """
    if sample.first_tokens is None or sample.tokens <= sample.first_tokens or sample.last_ns == sample.first_ns:
        return None
    return (sample.tokens - sample.first_tokens) / _seconds(sample.last_ns - sample.first_ns)


def e2e_tps(sample: Sample) -> float | None:
    """e2e_tps: out / (t_last_token - t_send), tokens per second. None when no time passed."""
    return _ratio(sample.tokens, _seconds(sample.last_ns - sample.send_ns))


def single_stream_tps(samples: Sequence[Sample]) -> float | None:
    """single_stream_tps: sum(out) / sum(t_last_token - t_send) over requests sent one after another, tokens per second.

    Prompt reading is inside, the client's own pauses between requests are not. None when there are no samples.
    """
    tokens = sum(sample.tokens for sample in samples)
    return _ratio(tokens, _seconds(sum(sample.last_ns - sample.send_ns for sample in samples)))


def decode_tps_geomean(samples: Sequence[Sample]) -> float | None:
    """decode_tps_geomean: geometric mean over the requests of decode_tps, tokens per second.

    None unless every request has a decode_tps: a mean over the ones that happen to have one is another quantity.
    """
    rates = [decode_tps(sample) for sample in samples]
    known = [rate for rate in rates if rate is not None]
    return geomean(known) if len(known) == len(rates) else None


def geomean(values: Sequence[float]) -> float | None:
    """geomean: exp(mean(ln v)). None when empty or when a value is not above zero."""
    if not values or min(values) <= 0:
        return None
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def ttft_s(sample: Sample) -> float:
    """ttft: t_first_token - t_send, seconds. The first token may be content, reasoning or a tool call."""
    return _seconds(sample.first_ns - sample.send_ns)


def ttfa_s(sample: Sample) -> float | None:
    """ttfa: t_first_answer - t_send, seconds, where an answer is a token that is not reasoning. None if none came."""
    return None if sample.answer_ns is None else _seconds(sample.answer_ns - sample.send_ns)


def tpot_ms(sample: Sample) -> float | None:
    """tpot: (t_last_token - t_first_token) / (out - n_first), milliseconds per token. None as for decode_tps."""
    if sample.first_tokens is None or sample.tokens <= sample.first_tokens:
        return None
    return (sample.last_ns - sample.first_ns) / NS_PER_MS / (sample.tokens - sample.first_tokens)


def burst_total_tps(samples: Sequence[Sample]) -> float | None:
    """burst_total_tps: sum(out) / (max t_last_token - min t_send), tokens per second. Ramp and tail are inside."""
    if not samples:
        return None
    span = max(sample.last_ns for sample in samples) - min(sample.send_ns for sample in samples)
    return _ratio(sum(sample.tokens for sample in samples), _seconds(span))


def burst_steady_tps(samples: Sequence[Sample]) -> float | None:
    """burst_steady_tps: tokens in [last stream's first token, first stream's last token] / that window, tokens per s.

    All streams decode in that window. A stream's token count at a moment between two of its chunks is interpolated
    linearly. None when the window is empty (some stream ended before another began) or chunk sizes are unknown.
    """
    if not samples or any(not sample.chunks for sample in samples):
        return None
    begin = max(sample.first_ns for sample in samples)
    end = min(sample.last_ns for sample in samples)
    if end <= begin:
        return None
    tokens = math.fsum(tokens_at(sample.chunks, end) - tokens_at(sample.chunks, begin) for sample in samples)
    return tokens / _seconds(end - begin)


def tokens_at(chunks: Sequence[tuple[int, int]], at_ns: int) -> float:
    """tokens_at: tokens that had arrived by `at_ns`, linear between chunks, 0 before the first, all after the last."""
    index = bisect_right(chunks, at_ns, key=lambda chunk: chunk[0])  # the first chunk that is still to come
    arrived = sum(tokens for _, tokens in chunks[:index])
    if index in (0, len(chunks)):
        return float(arrived)
    (before_ns, _), (after_ns, coming) = chunks[index - 1], chunks[index]
    return arrived + coming * (at_ns - before_ns) / (after_ns - before_ns)


def chunk_gaps_ms(samples: Sequence[Sample]) -> list[float]:
    """chunk_gap: times between consecutive token-bearing chunks of one request, milliseconds, all requests pooled.

    Not an inter-token latency: a chunk can bring several tokens.
    """
    return [(after - before) / NS_PER_MS for sample in samples for (before, _), (after, _) in pairwise(sample.chunks)]


def step_ms_client(samples: Sequence[Sample]) -> float | None:
    """step_ms.client: median of chunk_gap at one stream, milliseconds. None when there is no gap.

    One chunk is one engine step only at one stream, and only where the server says what each chunk brought.
    """
    return median(chunk_gaps_ms(samples))


def step_ms_itl(latency_sum_s: float | None, latency_count: float | None) -> float | None:
    """step_ms.itl: delta sum / delta count of vllm:inter_token_latency_seconds, milliseconds.

    vLLM observes it once per request and engine output batch, whatever number of tokens the batch carried: the mean is
    the step time that a request sees. None when either is unknown or nothing was observed.
    """
    if latency_sum_s is None or latency_count is None:
        return None
    return _ratio(latency_sum_s * 1000, latency_count)


def step_ms_busy(samples: Sequence[Sample], steps: float | None) -> float | None:
    """step_ms.busy: sum(t_last_token - t_send) at one stream / delta vllm:iteration_tokens_total_count, milliseconds.

    Prompt reading and the network are inside, so it is the largest of the three. None when the steps are unknown.
    """
    if steps is None:
        return None
    return _ratio(sum(sample.last_ns - sample.send_ns for sample in samples) / NS_PER_MS, steps)


def tokens_per_step(samples: Sequence[Sample]) -> float | None:
    """tokens_per_step: sum(out - n_first) / sum(token-bearing chunks - 1) at one stream. None when unknown."""
    if any(sample.first_tokens is None for sample in samples):
        return None
    tokens = sum(sample.tokens - (sample.first_tokens or 0) for sample in samples)
    return _ratio(tokens, sum(len(sample.chunks) - 1 for sample in samples))


def acceptance_length(accepted: float | None, drafts: float | None) -> float | None:
    """acceptance_length: 1 + delta accepted tokens / delta drafts. None when unknown or nothing was drafted."""
    share = None if accepted is None or drafts is None else _ratio(accepted, drafts)
    return None if share is None else 1 + share


def acceptance_rate(accepted: float | None, drafted: float | None) -> float | None:
    """acceptance_rate: delta accepted tokens / delta draft tokens, 0 to 1. None when unknown or nothing was drafted."""
    return None if accepted is None or drafted is None else _ratio(accepted, drafted)


def prefix_hit_rate(hits: float | None, queries: float | None) -> float | None:
    """prefix_hit_rate: delta prefix cache hits / delta queries, in tokens, 0 to 1. None when nothing was looked up."""
    return None if hits is None or queries is None else _ratio(hits, queries)


def start_spread_ms(send_ns: Sequence[int]) -> float | None:
    """start_spread: max t_send - min t_send of a burst, milliseconds. None when empty."""
    return (max(send_ns) - min(send_ns)) / NS_PER_MS if send_ns else None


def median(values: Sequence[float]) -> float | None:
    """median: the middle value, the mean of the two middle ones for an even count. None when empty."""
    return statistics.median(values) if values else None


def nearest_rank(values: Sequence[float], percent: float) -> float | None:
    """nearest_rank: the smallest value that at least `percent` per cent of the values do not exceed. None when empty.

    It is always one of the values. Raise ValueError unless 0 < percent <= 100.
    """
    if not 0 < percent <= 100:
        raise ValueError(f"percent must be above 0 and at most 100, not {percent}")
    if not values:
        return None
    return sorted(values)[math.ceil(percent / 100 * len(values)) - 1]


def _seconds(ns: int) -> float:
    return ns / NS_PER_S


def _ratio(above: float, below: float) -> float | None:
    return above / below if below > 0 else None
