"""The server's own counters: GET /metrics, and what it says in vLLM's names, old and new.

Names and meanings: vLLM 0.32 /metrics. Two rules. A name that is not there is None, never 0. And where a server has
both an old and a new name, the new one counts and the two are never added. Counters are summed over label sets (one
per engine); only differences between two scrapes mean anything, because counts can survive into a new boot.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lanectl.measure.client import Endpoint

FETCH_WITHIN_S = 3.0  # a scrape takes milliseconds; a server that cannot give one in 3 s is asked later, or not at all
LOOK_EVERY_S = 0.05  # vLLM counts a step within milliseconds of its last chunk: two looks this far apart straddle it
FIRST_WAITING_LOOK_S = 0.2  # a burst is admitted by then, and whoever found no slot still waits for one
WAITING_LOOK_EVERY_S = 1.0

# What is read, each with its names newest first (an old name was renamed, not another quantity).
GENERATED = ("vllm:generation_tokens_total",)
PROMPTED = ("vllm:prompt_tokens_total",)
STEPS = ("vllm:iteration_tokens_total_count",)  # a histogram despite its name: its count is engine steps
ITL_SUM = ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum")
ITL_COUNT = ("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count")
PREFIX_QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
PREFIX_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
DRAFTS = ("vllm:spec_decode_num_drafts_total",)
DRAFTED = ("vllm:spec_decode_num_draft_tokens_total",)
ACCEPTED = ("vllm:spec_decode_num_accepted_tokens_total",)
RUNNING = ("vllm:num_requests_running",)
WAITING = ("vllm:num_requests_waiting",)
CACHE_CONFIG = "vllm:cache_config_info"  # every field of the cache configuration, as labels of a gauge that is 1

COUNTERS = (GENERATED, PROMPTED, STEPS, ITL_SUM, ITL_COUNT, PREFIX_QUERIES, PREFIX_HITS, DRAFTS, DRAFTED, ACCEPTED)
WANTED = frozenset(name for names in (*COUNTERS, RUNNING, WAITING) for name in names) | {CACHE_CONFIG}


@dataclass(frozen=True, slots=True)
class Scrape:
    """One reading: the wanted samples by name, each as (labels, value) pairs."""

    samples: Mapping[str, tuple[tuple[Mapping[str, str], float], ...]]

    def total(self, names: tuple[str, ...]) -> float | None:
        """Given a quantity's names, return the sum over label sets of the first one that is there, else None."""
        for name in names:
            if name in self.samples:
                return sum(value for _, value in self.samples[name])
        return None

    def engines(self, names: tuple[str, ...]) -> int:
        """Return how many label sets the quantity has: the engines behind this server."""
        return next((len(self.samples[name]) for name in names if name in self.samples), 0)

    def cache_config(self) -> tuple[Mapping[str, str], ...]:
        """Return the cache configuration of each engine, empty when the server does not publish it."""
        return tuple(labels for labels, _ in self.samples.get(CACHE_CONFIG, ()))

    def counters(self) -> tuple[float | None, ...]:
        return tuple(self.total(names) for names in COUNTERS)

    def idle(self) -> bool:
        """True unless the server says that requests are running or waiting."""
        return not (self.total(RUNNING) or self.total(WAITING))


def parse(text: str) -> Scrape | None:
    """Given the text of /metrics, return what is wanted of it; None when it is no Prometheus exposition."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in WANTED:
                    found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    except ValueError:
        return None
    return Scrape({name: tuple(pairs) for name, pairs in found.items()})


def fetch(endpoint: Endpoint, path: str) -> tuple[int, bytes] | None:
    """Given a path such as /metrics, return (status, body) of a GET; None when there is no whole answer in time."""
    connection = endpoint.connection(FETCH_WITHIN_S)
    try:
        connection.connect()
        # A socket's own time-out begins again with every byte; closing it from a timer bounds the whole answer.
        limit = threading.Timer(FETCH_WITHIN_S, connection.sock.shutdown, (socket.SHUT_RDWR,))
        limit.daemon = True
        limit.start()
        try:
            connection.request("GET", endpoint.prefix + path, headers=endpoint.headers())
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            limit.cancel()
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def scrape(endpoint: Endpoint) -> Scrape | None:
    """Return a reading of the server's metrics, None when it has none or gives none in time."""
    answer = fetch(endpoint, "/metrics")
    if answer is None or answer[0] != http.HTTPStatus.OK:
        return None
    return parse(answer[1].decode("utf-8", "replace"))


def settle(endpoint: Endpoint, within_s: float, check: Callable[[], None]) -> tuple[Scrape | None, bool]:
    """Wait until the server is idle and its counters stand still (two equal readings). Return (last reading, at rest).

    A server records its counters after it has queued a step's output, so a reading taken on [DONE] can miss the last
    step. Not at rest `within_s` (somebody else's traffic, for one): the reading is the last one, and says less. (None,
    False) when the server publishes no metrics. Raise what `check` raises.
    """
    deadline = time.monotonic() + within_s
    reading = scrape(endpoint)
    while reading is not None and time.monotonic() < deadline:
        check()
        time.sleep(LOOK_EVERY_S)
        before, reading = reading, scrape(endpoint)
        if reading is None:
            break
        if before.idle() and reading.idle() and before.counters() == reading.counters():
            return reading, True
    return reading, False


class WaitingWatch:
    """Looks how many requests wait while a burst runs: a context manager around it; `highest` is known afterwards.

    Only fetches while the burst runs, and seldom (a scrape costs the server milliseconds); parses when it is over.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._over = threading.Event()
        self._bodies: list[bytes] = []
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> WaitingWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(FETCH_WITHIN_S)

    def highest(self) -> int | None:
        """Return the most requests seen waiting, None when no look saw a number."""
        readings = [parse(body.decode("utf-8", "replace")) for body in self._bodies]
        seen = [reading.total(WAITING) for reading in readings if reading is not None]
        known = [int(value) for value in seen if value is not None]
        return max(known, default=None)

    def _look(self) -> None:
        pause_s = FIRST_WAITING_LOOK_S
        while not self._over.wait(pause_s):
            answer = fetch(self._endpoint, "/metrics")
            if answer is not None and answer[0] == http.HTTPStatus.OK:
                self._bodies.append(answer[1])
            pause_s = WAITING_LOOK_EVERY_S


def increase(before: Scrape | None, after: Scrape | None, names: tuple[str, ...]) -> float | None:
    """Return how much a counter grew between two readings; None when unknown or when it went down (a restart)."""
    start = None if before is None else before.total(names)
    end = None if after is None else after.total(names)
    if start is None or end is None or end < start:
        return None
    return end - start


def kv_cache_tokens(reading: Scrape | None, log_tokens: int | None) -> tuple[int | None, str | None]:
    """Return (KV cache tokens summed over engines, where that came from: metrics | log), (None, None) when unknown.

    The server's own `kv_cache_size_tokens` comes before the log's line. Blocks times block size is not used: it is
    wrong for models with several kinds of attention (block_size is the smallest of them).
    """
    configs = reading.cache_config() if reading is not None else ()
    sizes = [config.get("kv_cache_size_tokens", "") for config in configs]
    if sizes and all(size.isdecimal() for size in sizes):
        return sum(int(size) for size in sizes), "metrics"
    return (log_tokens, "log") if log_tokens is not None else (None, None)
