"""The server's own numbers, under vLLM's names and types (source: vLLM 0.32 /metrics).

Used by the server's loop alone, so there are no locks: a step's numbers are recorded before its tokens are sent,
and a scrape after the last token of an answer sees all of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lanectl.reference.messages import Output, StepReport, Submit

# vLLM's bucket bounds, in seconds.
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0)
# … and in tokens.
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)

_FINISHED = ("stop", "length", "abort", "error", "repetition")

_COUNTERS = {
    "prompt_tokens": "Number of prefill tokens processed.",
    "prompt_tokens_cached": "Number of prompt tokens taken from the prefix cache.",
    "generation_tokens": "Number of generation tokens processed.",
    "prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
    "prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
    "num_preemptions": "Cumulative number of preemptions from the engine.",
}
_GAUGES = {
    "num_requests_running": "Number of requests in model execution batches.",
    "num_requests_waiting": "Number of requests waiting to be processed.",
    "kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}
_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "time_to_first_token_seconds": ("Time to first token in seconds.", _TTFT),
    "inter_token_latency_seconds": ("Inter-token latency in seconds.", _BETWEEN),
    "request_time_per_output_token_seconds": ("Time per output token of a request in seconds.", _BETWEEN),
    "e2e_request_latency_seconds": ("End to end request latency in seconds.", _REQUEST),
    "request_queue_time_seconds": ("Time a request spent waiting.", _REQUEST),
    "request_prefill_time_seconds": ("Time a request spent in prefill.", _REQUEST),
    "request_decode_time_seconds": ("Time a request spent in decode.", _REQUEST),
    "request_inference_time_seconds": ("Time a request spent running.", _REQUEST),
    "iteration_tokens_total": ("Number of tokens per engine step.", _STEP_TOKENS),
    "request_prompt_tokens": ("Number of prefill tokens processed.", _TOKENS),
    "request_generation_tokens": ("Number of generation tokens processed.", _TOKENS),
    "request_params_max_tokens": ("The max_tokens request parameter.", _TOKENS),
}


@dataclass
class _Request:
    """One request's times, in seconds of the monotonic clock, and counts."""

    submit: Submit
    arrived: float
    admitted: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    written: int = 0
    cached_tokens: int = 0


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Metrics:
    """Counts what the engine reports, and writes it in the Prometheus text format."""

    def __init__(self, model_name: str, cache_config: Mapping[str, str], started_at: float) -> None:
        self._labels = f'model_name="{_escaped(model_name)}",engine="0"'
        self._cache_config = dict(cache_config)
        self._started_at = started_at
        self._counters = dict.fromkeys(_COUNTERS, 0)
        self._gauges = dict.fromkeys(_GAUGES, 0.0)
        self._histograms = {name: _Histogram(bounds) for name, (_, bounds) in _HISTOGRAMS.items()}
        self._finished = dict.fromkeys(_FINISHED, 0)
        self._swaps = 0
        self._requests: dict[int, _Request] = {}  # by number, every one that is not finished

    def arrived(self, submit: Submit, at: float) -> None:
        """Given a request that is on its way to the engine, and when it came, count it from now on."""
        self._requests[submit.number] = _Request(submit, at)

    def record(self, report: StepReport) -> None:
        """Given the report of a step, count it."""
        self._gauges["num_requests_running"] = report.running
        self._gauges["num_requests_waiting"] = report.waiting
        self._gauges["kv_cache_usage_perc"] = report.cache_use
        self._swaps = report.swaps
        for admission in report.admissions:
            request = self._requests[admission.number]
            request.admitted, request.cached_tokens = admission.at, admission.cached_tokens
            self._counters["prefix_cache_queries"] += len(request.submit.prompt)
            self._counters["prefix_cache_hits"] += admission.cached_tokens
        if report.stepped:
            self._observe("iteration_tokens_total", report.prompt_tokens + len(report.outputs))
        self._counters["generation_tokens"] += len(report.outputs)
        for output in report.outputs:
            self._record_output(output, report.at)
        for abort in report.aborted:
            self._finish(abort.number, abort.reason, report.at)

    def _record_output(self, output: Output, at: float) -> None:
        request = self._requests[output.number]
        if request.written == 0:
            request.first_token = at
            self._counters["prompt_tokens"] += len(request.submit.prompt)
            self._counters["prompt_tokens_cached"] += request.cached_tokens
            self._observe("time_to_first_token_seconds", at - request.arrived)
        else:
            self._observe("inter_token_latency_seconds", at - request.last_token)
        request.last_token = at
        request.written += 1
        if output.reason is not None:
            self._finish(output.number, output.reason, at)

    def _finish(self, number: int, reason: str, at: float) -> None:
        self._finished[reason] += 1
        request = self._requests.pop(number)
        decode = request.last_token - request.first_token
        self._observe("e2e_request_latency_seconds", at - request.arrived)
        self._observe("request_queue_time_seconds", (request.admitted or at) - request.arrived)
        if request.written:
            self._observe("request_prefill_time_seconds", request.first_token - request.admitted)
            self._observe("request_decode_time_seconds", decode)
            self._observe("request_inference_time_seconds", request.last_token - request.admitted)
        if request.written > 1:
            self._observe("request_time_per_output_token_seconds", decode / (request.written - 1))
        self._observe("request_prompt_tokens", len(request.submit.prompt))
        self._observe("request_generation_tokens", request.written)
        self._observe("request_params_max_tokens", request.submit.max_tokens)

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def text(self) -> str:
        """Return all of it in the Prometheus text format, version 0.0.4."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head(
            "process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds."
        )
        yield f"process_start_time_seconds {self._started_at}"
        for name, help_text in _GAUGES.items():
            yield from _head(f"vllm:{name}", "gauge", help_text)
            yield f"vllm:{name}{{{self._labels}}} {float(self._gauges[name])}"
        for name, help_text in _COUNTERS.items():
            yield from _head(f"vllm:{name}_total", "counter", help_text)
            yield f"vllm:{name}_total{{{self._labels}}} {float(self._counters[name])}"
        yield from _head("vllm:request_success_total", "counter", "Count of successfully processed requests.")
        for reason, count in self._finished.items():
            yield f'vllm:request_success_total{{{self._labels},finished_reason="{reason}"}} {float(count)}'
        for name, (help_text, _) in _HISTOGRAMS.items():
            yield from _head(f"vllm:{name}", "histogram", help_text)
            yield from self._histogram_lines(name)
        yield from _head("reference:residency_swaps_total", "counter", "Experts swapped into fast memory for others.")
        yield f"reference:residency_swaps_total{{{self._labels}}} {float(self._swaps)}"
        yield from _head("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig.")
        config = ",".join(f'{name}="{_escaped(value)}"' for name, value in self._cache_config.items())
        yield f"vllm:cache_config_info{{{self._labels},{config}}} 1.0"

    def _histogram_lines(self, name: str) -> Iterator[str]:
        histogram = self._histograms[name]
        below = 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            below += count
            limit = "+Inf" if bound == float("inf") else str(float(bound))
            yield f'vllm:{name}_bucket{{{self._labels},le="{limit}"}} {float(below)}'
        yield f"vllm:{name}_count{{{self._labels}}} {float(below)}"
        yield f"vllm:{name}_sum{{{self._labels}}} {histogram.total}"


def _head(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
