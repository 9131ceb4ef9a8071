"""However a server legally spells its stream, the request counts, and with the right numbers."""

from __future__ import annotations

import hashlib
import json
import socket

import pytest

from lanectl.measure.client import Endpoint, RequestShape, Stream
from tests.support.measuring import one_request
from tests.support.mock_engine import FINGERPRINT, MODEL, Behaviour, MockEngine

TWELVE_IDS = hashlib.sha256(json.dumps(list(range(12))).encode()).hexdigest()

SPELLINGS = {
    "as vLLM": Behaviour(),
    "CRLF": Behaviour(line_end=b"\r\n"),
    "CR": Behaviour(line_end=b"\r"),
    "no space after data:": Behaviour(data_space=False),
    "keep-alive comments": Behaviour(keep_alive=True),
    "one byte a write": Behaviour(write_size=1),
    "split UTF-8": Behaviour(words=("日本", "é ", "🙂"), write_size=5),
    "U+2028, U+2029 and U+0085": Behaviour(words=("a\u2028", "b\u2029", "c\x85")),
    "CRLF, cut anywhere": Behaviour(line_end=b"\r\n", write_size=7),
    "no role chunk": Behaviour(role_first=False),
    "Connection: close": Behaviour(close_after=True),
    "text swallowed by a parser": Behaviour(silent=frozenset({0, 3, 11})),
    "reasoning": Behaviour(reasoning=("reasoning", 4)),
    "reasoning under its old name": Behaviour(reasoning=("reasoning_content", 4)),
    "ended by itself": Behaviour(finish_reason="stop"),
}


@pytest.mark.parametrize("behaviour", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_each_spelling_counts(behaviour: Behaviour) -> None:
    with MockEngine(behaviour) as engine:
        record = one_request(engine.url)
    assert record.error is None
    assert record.token_source == "token_ids"
    assert record.completion_tokens == 12
    assert record.token_ids_sha256 == TWELVE_IDS
    assert [tokens for _, tokens in record.chunks if tokens] == [1] * 12
    assert record.fingerprint == FINGERPRINT
    assert record.saw_done
    assert record.saw_usage
    times = [record.t_sched, record.t_send, record.t_headers, record.t_first_byte, record.t_first_chunk]
    times += [record.t_first_token, record.t_last_token, record.t_done]
    assert None not in times
    assert times == sorted(times)


def test_nothing_but_reasoning_has_no_first_answer() -> None:
    with MockEngine(Behaviour(reasoning=("reasoning", 99))) as engine:
        record = one_request(engine.url)
    assert record.ok
    assert record.t_first_answer is None


def test_several_tokens_in_a_chunk_are_several_tokens() -> None:
    with MockEngine(Behaviour(per_chunk=5)) as engine:
        record = one_request(engine.url)
    assert [tokens for _, tokens in record.chunks if tokens] == [5, 5, 2]
    assert record.n_first == 5
    assert record.sample().chunks[0][1] == 5


def test_running_usage_counts_what_token_ids_would_and_what_a_parser_swallowed() -> None:
    with MockEngine(Behaviour(per_chunk=4, silent=frozenset({1}), ignores=frozenset({"return_token_ids"}))) as engine:
        record = one_request(engine.url)
    assert record.token_source == "continuous_usage"
    assert [tokens for _, tokens in record.chunks if tokens] == [4, 8]  # the silent step's tokens come with the next
    assert record.ok


def test_with_the_total_alone_chunks_have_no_size() -> None:
    ignored = frozenset({"return_token_ids", "continuous_usage_stats"})
    with MockEngine(Behaviour(per_chunk=4, ignores=ignored)) as engine:
        record = one_request(engine.url)
    assert record.token_source == "final_usage"
    assert record.ok
    assert [tokens for _, tokens in record.chunks] == [0, None, None, None]
    sample = record.sample()
    assert sample.tokens == 12
    assert sample.first_tokens is None
    assert sample.chunks == ()


def test_the_request_asks_for_what_makes_a_measurement_honest() -> None:
    with MockEngine() as engine:
        one_request(engine.url)
    (body,), (headers,) = engine.bodies, engine.headers
    assert body == {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Say something."}],
        "max_tokens": 12,
        "temperature": 0,
        "seed": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
        "cache_salt": "5a17",
    }
    assert headers["x-request-id"] == "request-1"
    assert "Authorization" not in headers


def test_thinking_settings_are_sent_when_a_profile_pins_them() -> None:
    body = json.loads(RequestShape(MODEL, 1, {"reasoning_effort": 64}).body("x", "5a17"))
    assert body["chat_template_kwargs"] == {"reasoning_effort": 64}


def test_a_stream_waits_for_no_other_packet() -> None:
    with MockEngine() as engine:
        stream = Stream(Endpoint.parse(engine.url), RequestShape(MODEL, 1).body("x", "5a17"), "request-1")
        stream.open(5)
        assert stream._socket is not None
        assert stream._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        stream.close()


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with MockEngine() as engine:
        assert one_request(engine.url).ok
