"""A server that speaks vLLM's chat stream and metrics, and misbehaves on request. Standard library only.

It computes nothing: token n of an answer is "w<n> ", its id is n. What it sends and how is a `Behaviour`, which a test
may replace while the server runs. As a program it measures the client: `python -m tests.support.mock_engine`.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "mock"
FINGERPRINT = "mock-1-abcdef01"


@dataclass(frozen=True)
class Behaviour:
    """How the server answers. The defaults are a healthy, fast vLLM."""

    # The stream.
    tokens: int | None = None  # how many an answer has; None: as many as max_tokens asks for
    per_chunk: int = 1  # tokens that one step brings, as under speculative decoding
    step_s: float = 0.0
    role_first: bool = True  # a first chunk with a role and no text
    reasoning: tuple[str, int] | None = None  # (field name, how many chunks of it come before the answer)
    silent: frozenset[int] = frozenset()  # chunks whose text the parser swallowed
    words: tuple[str, ...] = ()  # instead of "w<n> "
    finish_reason: str | None = "length"
    usage: bool = True
    usage_off_by: int = 0
    done: bool = True
    refuses: frozenset[str] = frozenset()  # request fields answered with HTTP 400
    ignores: frozenset[str] = frozenset()  # request fields without effect
    # The bytes.
    line_end: bytes = b"\n"
    data_space: bool = True
    keep_alive: bool = False  # a comment line before each event
    write_size: int | None = None  # cut every event into writes of so many bytes
    stamps: bool = False  # each event carries the clock at its write
    close_after: bool = False  # "Connection: close" and no chunked encoding
    # The faults. A chunk number, or None for never.
    error_at: int | None = None  # an error object inside the 200, then [DONE]
    cut_at: int | None = None  # the connection is closed
    end_at: int | None = None  # the body ends as if all were well
    hang_at: int | None = None
    hang_before_headers: bool = False
    drip_headers: bool = False  # header bytes for ever, one at a time
    status: int = 200
    fails_on: str = ""  # only requests whose prompt has this text meet the fault; empty: all
    # The server's own numbers.
    metrics: str = "new"  # new | old | both | none
    slots: int | None = None  # requests served at once; the others wait
    engines: int = 1
    foreign_tokens: int = 0  # generated for somebody else beside each request
    hit_share: float = 0.0
    drafts: bool = False
    kv_tokens: int | None = 8_400_000


FAULTLESS = Behaviour()


class MockEngine:
    """The server on a free loopback port; a context manager. `bodies`: every chat request it received, parsed."""

    def __init__(self, behaviour: Behaviour = FAULTLESS) -> None:
        self.behaviour = behaviour
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.engine = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> MockEngine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, **counts: float) -> None:
        with self.lock:
            self.counts.update(counts)

    def wait_for_a_slot(self, slots: int | None) -> None:
        """Count this request as running, once fewer than `slots` are."""
        self.add(waiting=1)
        while not self.closing.is_set():
            with self.lock:
                if slots is None or self.counts["running"] < slots:
                    self.counts.update(waiting=-1, running=1)
                    return
            time.sleep(0.001)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a handler that hangs on purpose ends with the test's process
    request_queue_size = 128
    engine: MockEngine


@dataclass
class _Chunk:
    text: str
    ids: list[int]
    reasoning: str | None = None
    last: bool = False


@dataclass
class _Sent:
    """How far an answer has come."""

    tokens: int = 0
    prompt_tokens: int = 0
    begin: float = field(default_factory=time.monotonic)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        engine = self.server.engine
        if self.path == "/health":
            self._plain(200, b"")
        elif self.path == "/v1/models":
            self._plain(200, json.dumps({"data": [{"id": MODEL, "max_model_len": 4096}]}).encode())
        elif self.path == "/metrics" and engine.behaviour.metrics != "none":
            self._plain(200, metrics_text(engine).encode())
        else:
            self._plain(404, b"not here")

    def do_POST(self) -> None:
        engine, behaviour = self.server.engine, self.server.engine.behaviour
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with engine.lock:
            engine.bodies.append(body)
            engine.headers.append(dict(self.headers))
        faulty = behaviour.fails_on in body["messages"][0]["content"]
        present = set(body) | set(body.get("stream_options", {}))
        refused = sorted(behaviour.refuses & present)
        if refused:
            message = f"Unrecognized request argument supplied: {refused[0]}"
            self._plain(400, json.dumps({"error": {"message": message, "code": 400}}).encode())
        elif behaviour.status != 200 and faulty:
            self._plain(behaviour.status, b'{"error": {"message": "as the test wants"}}')
        elif behaviour.hang_before_headers and faulty:
            engine.closing.wait()
        elif behaviour.drip_headers and faulty:
            self._drip()
        else:
            engine.wait_for_a_slot(behaviour.slots)
            try:
                self._stream(body, behaviour, faulty)
            except OSError:
                self.close_connection = True  # the client went away
            finally:
                engine.add(running=-1)

    def _plain(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status in {301, 307}:
            self.send_header("Location", "/v1/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def _drip(self) -> None:
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        while not self.server.engine.closing.wait(0.05):
            try:
                self.wfile.write(b"x")
            except OSError:
                return

    def _stream(self, body: dict[str, Any], behaviour: Behaviour, faulty: bool) -> None:
        engine = self.server.engine
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        if behaviour.close_after:
            self.send_header("Connection", "close")
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent = _Sent(prompt_tokens=len(body["messages"][0]["content"].split()))
        # The counters move before the last bytes leave, so that a reading after [DONE] is complete.
        engine.add(prompted=sent.prompt_tokens, looked_up=sent.prompt_tokens, generated=behaviour.foreign_tokens)
        engine.add(hits=round(sent.prompt_tokens * behaviour.hit_share))
        if behaviour.role_first:
            self._event(behaviour, body, sent, {"delta": {"role": "assistant", "content": ""}, "finish_reason": None})
        for number, chunk in enumerate(answer_of(behaviour, body)):
            if behaviour.step_s:
                until = sent.begin + (number + 1) * behaviour.step_s
                time.sleep(max(0.0, until - time.monotonic()))
            if faulty and self._fault(behaviour, number):
                return
            engine.add(generated=len(chunk.ids), steps=1, gaps=1 if number else 0)
            engine.add(gap_s=behaviour.step_s if number else 0)
            if behaviour.drafts:
                engine.add(drafts=1, drafted=5, accepted=len(chunk.ids) - 1)
            sent.tokens += len(chunk.ids)
            if number in behaviour.silent and not self._wants(body, behaviour, "return_token_ids"):
                continue
            delta = {chunk.reasoning or "content": "" if number in behaviour.silent else chunk.text}
            choice: dict[str, Any] = {"delta": delta, "finish_reason": behaviour.finish_reason if chunk.last else None}
            if self._wants(body, behaviour, "return_token_ids"):
                choice["token_ids"] = chunk.ids
            self._event(behaviour, body, sent, choice)
        if behaviour.usage:
            self._event(behaviour, body, sent, None)
        if behaviour.done:
            self._write(behaviour, self._framed(behaviour, b"[DONE]"))
        self._end_body(behaviour)

    def _fault(self, behaviour: Behaviour, number: int) -> bool:
        """Commit the fault that is due at this chunk; return whether the answer is over."""
        if number == behaviour.error_at:
            self._write(behaviour, self._framed(behaviour, b'{"error":{"message":"engine died","code":500}}'))
            self._write(behaviour, self._framed(behaviour, b"[DONE]"))
            self._end_body(behaviour)
        elif number == behaviour.cut_at:
            self.close_connection = True
        elif number == behaviour.end_at:
            self._end_body(behaviour)
        elif number == behaviour.hang_at:
            self.server.engine.closing.wait()
        else:
            return False
        return True

    def _wants(self, body: dict[str, Any], behaviour: Behaviour, name: str) -> bool:
        asked = body.get(name) or body.get("stream_options", {}).get(name)
        return bool(asked) and name not in behaviour.ignores

    def _event(self, behaviour: Behaviour, body: dict[str, Any], sent: _Sent, choice: dict[str, Any] | None) -> None:
        """Write one chunk; without a choice it is the closing one with the usage."""
        message: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": MODEL}
        message["choices"] = [] if choice is None else [{"index": 0, **choice}]
        if choice is None:
            message["system_fingerprint"] = FINGERPRINT
        if choice is None or self._wants(body, behaviour, "continuous_usage_stats"):
            total = sent.tokens + (behaviour.usage_off_by if choice is None else 0)
            message["usage"] = {"prompt_tokens": sent.prompt_tokens, "completion_tokens": total}
        if behaviour.stamps:
            message["written_ns"] = time.monotonic_ns()
        self._write(behaviour, self._framed(behaviour, json.dumps(message, ensure_ascii=False).encode()))

    def _framed(self, behaviour: Behaviour, data: bytes) -> bytes:
        end = behaviour.line_end
        comment = b": keep-alive" + end if behaviour.keep_alive else b""
        return comment + (b"data: " if behaviour.data_space else b"data:") + data + end + end

    def _write(self, behaviour: Behaviour, event: bytes) -> None:
        size = behaviour.write_size or len(event)
        for piece in (event[at : at + size] for at in range(0, len(event), size)):
            self.wfile.write(piece if behaviour.close_after else b"%x\r\n%s\r\n" % (len(piece), piece))

    def _end_body(self, behaviour: Behaviour) -> None:
        if not behaviour.close_after:
            self.wfile.write(b"0\r\n\r\n")


def answer_of(behaviour: Behaviour, body: dict[str, Any]) -> Iterator[_Chunk]:
    """Yield the chunks of an answer."""
    total = min(body["max_tokens"], behaviour.tokens or body["max_tokens"])
    thinking, thoughts = behaviour.reasoning or (None, 0)
    for number, first in enumerate(range(0, total, behaviour.per_chunk)):
        ids = list(range(first, min(first + behaviour.per_chunk, total)))
        words = [behaviour.words[i % len(behaviour.words)] if behaviour.words else f"w{i} " for i in ids]
        yield _Chunk("".join(words), ids, thinking if number < thoughts else None, last=ids[-1] == total - 1)


def metrics_text(engine: MockEngine) -> str:
    """The counters in the names of the day: today's, the old ones, or both at once."""
    behaviour = engine.behaviour
    with engine.lock:
        counts = dict(engine.counts)
    lines: list[str] = []

    def put(name: str, kind: str, count: float, suffix: str = "") -> None:
        lines.append(f"# TYPE {name} {kind}")
        for index in range(behaviour.engines):
            share = count / behaviour.engines  # split over the engines: only the sum means anything
            lines.append(f'{name}{suffix}{{engine="{index}",model_name="{MODEL}"}} {share}')

    for name, count in (("generation_tokens", "generated"), ("prompt_tokens", "prompted")):
        put(f"vllm:{name}", "counter", counts.get(count, 0), "_total")
    for name, count in (("num_requests_running", "running"), ("num_requests_waiting", "waiting")):
        put(f"vllm:{name}", "gauge", counts.get(count, 0))
    put("vllm:iteration_tokens_total", "histogram", counts.get("steps", 0), "_count")
    ages = {"new": ("",), "old": ("old",), "both": ("", "old")}[behaviour.metrics]
    for age in ages:
        # Where both names are there, the old one grows otherwise, so that adding or preferring it would show.
        wrong = 3 if len(ages) == 2 and age else 1
        latency = "vllm:time_per_output_token_seconds" if age else "vllm:inter_token_latency_seconds"
        put(latency, "histogram", counts.get("gap_s", 0) * wrong, "_sum")
        put(latency, "histogram", counts.get("gaps", 0), "_count")
        prefix = "vllm:gpu_prefix_cache" if age else "vllm:prefix_cache"
        put(f"{prefix}_queries", "counter", counts.get("looked_up", 0), "_total")
        put(f"{prefix}_hits", "counter", counts.get("hits", 0) * wrong, "_total")
    if behaviour.drafts:
        for name, count in (("drafts", "drafts"), ("draft_tokens", "drafted"), ("accepted_tokens", "accepted")):
            put(f"vllm:spec_decode_num_{name}", "counter", counts.get(count, 0), "_total")
    if behaviour.kv_tokens is not None:
        lines.append("# TYPE vllm:cache_config_info gauge")
        size = behaviour.kv_tokens // behaviour.engines
        lines += [
            f'vllm:cache_config_info{{engine="{index}",block_size="4",num_gpu_blocks="7",cache_dtype="auto",'
            f'gpu_memory_utilization="0.97",kv_cache_size_tokens="{size}"}} 1.0'
            for index in range(behaviour.engines)
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Serve until standard input ends, each event stamped with the clock at its write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--per-chunk", type=int, default=1)
    options = parser.parse_args()
    with MockEngine(Behaviour(step_s=options.step_ms / 1000, per_chunk=options.per_chunk, stamps=True)) as engine:
        print(engine.url, flush=True)
        while input_line():
            pass


def input_line() -> str:
    try:
        return input()
    except EOFError:
        return ""


if __name__ == "__main__":
    main()
