"""The reference engine as a process: its boot log, its numbers, its queue, lost clients, and its end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.poll import until
from tests.support.reference import ReferenceServer

WAIT_S = 10.0
PROMPT = "The people of the old house read the letter in the winter garden."


def test_the_boot_log_tells_true_numbers_in_vllms_words() -> None:
    options = ("--max-model-len", "512", "--kv-cache-memory-bytes", str(4 * 1024**2), "--device-word", "CPU")
    with ReferenceServer("--shape", "small", *options) as server:
        until(lambda: "Application startup complete." in server.log, WAIT_S, "the last boot line")
        found = re.search(
            r"CPU KV cache size: ([\d,]+) tokens, Maximum concurrency for 512 tokens .*: (\S+)x", server.log
        )
        assert found
        tokens = int(found[1].replace(",", ""))
        labels = dict(re.findall(r'(\w+)="([^"]*)"', _line(server, "vllm:cache_config_info")))
        assert (
            tokens == int(labels["num_gpu_blocks"]) * int(labels["block_size"]) == int(labels["kv_cache_size_tokens"])
        )
        assert float(found[2]) == round(tokens / 512, 2)
        assert "48 experts a layer, 48 resident a layer, 4 picked" in server.log
        assert "Available KV cache memory: 0.00 GiB" in server.log
        assert f"INFO:     Started server process [{server.process.pid}]" in server.log


def _line(server: ReferenceServer, name: str) -> str:
    text = server.get("/metrics").body.decode()
    return next(line for line in text.splitlines() if line.startswith(name + "{"))


def test_what_was_promised_in_the_log_fits_in_the_cache() -> None:
    with ReferenceServer("--max-model-len", "256", "--kv-cache-memory-bytes", str(2 * 256 * 2 * 80 * 4)) as server:
        assert "Maximum concurrency for 256 tokens per request: 2.00x" in server.log
        threads = [threading.Thread(target=server.tokens, args=(f"{n}",), kwargs={"max_tokens": 250}) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert server.metric("vllm:generation_tokens_total") == 750


def test_a_context_that_does_not_fit_in_the_cache_is_a_failed_boot() -> None:
    with ReferenceServer("--kv-cache-memory-bytes", "1000", wait=False) as server:
        assert server.ended() == 1
        assert "RuntimeError: Engine core initialization failed" in server.log
        assert "ValueError: max seq len (4096) is larger" in server.log


def test_the_same_seed_gives_the_same_answers_in_another_process_and_another_seed_others() -> None:
    def answers(*options: str) -> tuple[list[int], str]:
        with ReferenceServer(*options) as server:
            completion = server.complete(PROMPT, max_tokens=32)
            return completion["choices"][0]["token_ids"], completion["system_fingerprint"]

    first, again, other = answers("--seed", "7"), answers("--seed", "7"), answers("--seed", "8")
    assert first == again
    assert first[0] != other[0]
    assert first[1] != other[1]


def test_the_metrics_are_true() -> None:
    with ReferenceServer("--served-model-name", 'odd"name') as server:
        prompt = len(server.complete(PROMPT, max_tokens=10)["choices"][0]["prompt_token_ids"])
        server.complete(PROMPT, max_tokens=10)  # its full blocks come out of the prefix cache
        server.complete(PROMPT, max_tokens=10, cache_salt="other")  # these do not
        text = server.get("/metrics").body.decode()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        samples = {sample.name: sample for family in families.values() for sample in family.samples}
        assert samples["vllm:num_requests_running"].labels == {"model_name": 'odd"name', "engine": "0"}
        reused = (prompt - 1) // 16 * 16
        assert reused > 0
        expected = {
            "vllm:prompt_tokens_total": 3 * prompt,
            "vllm:generation_tokens_total": 30,
            "vllm:prefix_cache_queries_total": 3 * prompt,
            "vllm:prefix_cache_hits_total": reused,
            "vllm:prompt_tokens_cached_total": reused,
            "vllm:num_preemptions_total": 0,
            "vllm:num_requests_running": 0,
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": 0,
            "vllm:iteration_tokens_total_count": 30,  # one step a token: prompts fit in one step
            "vllm:iteration_tokens_total_sum": 3 * prompt - reused + 30,
            "vllm:time_to_first_token_seconds_count": 3,
            "vllm:inter_token_latency_seconds_count": 27,
            "vllm:request_decode_time_seconds_count": 3,
            "vllm:e2e_request_latency_seconds_count": 3,
            "vllm:request_prompt_tokens_sum": 3 * prompt,
            "vllm:request_generation_tokens_sum": 30,
        }
        assert {name: samples[name].value for name in expected} == expected
        finished = {
            sample.labels["finished_reason"]: sample.value for sample in families["vllm:request_success"].samples
        }
        assert finished == {"stop": 0, "length": 3, "abort": 0, "error": 0, "repetition": 0}
        seconds = {name: samples[f"vllm:{name}_sum"].value for name in _TIMES}
        assert seconds["inter_token_latency_seconds"] > 0
        assert seconds["inter_token_latency_seconds"] == pytest.approx(seconds["request_decode_time_seconds"])
        assert seconds["time_to_first_token_seconds"] < seconds["e2e_request_latency_seconds"]
        started = psutil.Process(server.process.pid).create_time()
        assert samples["process_start_time_seconds"].value == pytest.approx(started, abs=5)
        types = {family.name: family.type for family in families.values()}
        assert types["vllm:generation_tokens"] == "counter"
        assert types["vllm:iteration_tokens_total"] == types["vllm:inter_token_latency_seconds"] == "histogram"


_TIMES = (
    "inter_token_latency_seconds",
    "request_decode_time_seconds",
    "time_to_first_token_seconds",
    "e2e_request_latency_seconds",
)


def _begin(server: ReferenceServer, max_tokens: int = 4000) -> socket.socket:
    """Begin a long stream and return its socket."""
    connection = server.connect()
    body = {"prompt": PROMPT, "max_tokens": max_tokens, "stream": True, "temperature": 0}
    connection.request("POST", "/v1/completions", json.dumps(body))
    assert connection.sock is not None
    return connection.sock


def test_requests_beyond_the_seats_wait_and_a_lost_client_frees_its_seat() -> None:
    with ReferenceServer("--max-num-seqs", "2", faults="step-delay=0.002") as server:
        clients = [_begin(server) for _ in range(3)]
        until(lambda: server.metric("vllm:num_requests_waiting") == 1, WAIT_S, "one request waiting")
        assert server.metric("vllm:num_requests_running") == 2
        assert server.metric("vllm:kv_cache_usage_perc") > 0
        clients[2].close()
        until(lambda: server.metric("vllm:num_requests_waiting") == 0, WAIT_S, "the queue empty")
        clients[0].close()
        until(lambda: server.metric("vllm:num_requests_running") == 1, WAIT_S, "one seat free")
        assert len(server.tokens("hello")) == 8
        clients[1].close()
        until(lambda: server.metric("vllm:num_requests_running") == 0, WAIT_S, "all seats free")
        assert server.metric("vllm:kv_cache_usage_perc") == 0
        assert 'finished_reason="abort"} 3.0' in server.get("/metrics").body.decode()


def test_a_client_that_leaves_before_a_whole_answer_frees_its_seat() -> None:
    with ReferenceServer("--max-num-seqs", "1", faults="step-delay=0.002") as server:
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": PROMPT, "max_tokens": 4000}))
        until(lambda: server.metric("vllm:num_requests_running") == 1, WAIT_S, "the request running")
        connection.close()
        assert len(server.tokens("hello")) == 8


def test_sigterm_ends_it_with_0_even_in_the_middle_of_a_stream() -> None:
    with ReferenceServer() as server:
        client = _begin(server)
        assert client.recv(1000)
        engine = server.engine_process()
        assert server.terminate() == 0
        assert "Shutting down" in server.log
        assert not _alive(engine)
        client.close()


def test_sigterm_while_booting_ends_it_too() -> None:
    with ReferenceServer(faults="boot-delay=60", wait=False) as server:
        until(lambda: "Reference engine version" in server.log, WAIT_S, "the first line")
        assert server.terminate() == 0


def test_killed_it_leaves_no_engine_behind() -> None:
    with ReferenceServer(faults="hang") as server:
        client = _begin(server)
        engine = server.engine_process()
        server.process.kill()
        assert server.ended() == -signal.SIGKILL
        until(lambda: not _alive(engine), WAIT_S, "the engine's end")
        client.close()


def test_an_engine_that_dies_takes_the_server_with_it_and_says_so() -> None:
    with ReferenceServer(faults="step-delay=0.002") as server:
        client = _begin(server)
        assert client.recv(1000)
        os.kill(server.engine_process(), signal.SIGKILL)
        raw = b"".join(iter(lambda: client.recv(65536), b""))
        assert b'"error"' in raw
        assert b"InternalServerError" in raw
        assert server.ended() == 1
        assert "EngineCore failed" in server.log
        client.close()


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_taken_port_is_a_failed_start_that_names_it() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with ReferenceServer("--port", str(port), wait=False) as server:
            assert server.ended() == 1
            assert f"cannot bind 127.0.0.1:{port}: Address already in use" in server.log
