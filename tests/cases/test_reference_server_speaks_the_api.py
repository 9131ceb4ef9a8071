"""The reference engine over HTTP: OpenAI's API as vLLM serves it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lanectl.reference.tokenizer import END, Tokenizer
from tests.support.reference import ReferenceServer

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = [{"role": "user", "content": "Hello there."}]


@pytest.fixture(scope="module")
def server() -> Iterator[ReferenceServer]:
    with ReferenceServer("--served-model-name", "demo", "alias", "--max-model-len", "256") as started:
        yield started


def test_a_chat_stream_is_role_then_text_then_usage_then_done(server: ReferenceServer) -> None:
    answer = server.stream(max_tokens=6)
    assert answer.status == 200
    assert answer.complete
    assert answer.done
    role, *texts, usage = answer.chunks
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert role["prompt_token_ids"] == Tokenizer().chat([("user", "Hello there.")])
    assert [chunk["choices"][0]["finish_reason"] for chunk in texts] == [None] * 5 + ["length"]
    assert all(len(chunk["choices"][0]["token_ids"]) == 1 for chunk in texts)
    assert answer.text == Tokenizer().decode(answer.token_ids)
    prompt = len(role["prompt_token_ids"])
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": prompt, "completion_tokens": 6, "total_tokens": prompt + 6}
    for chunk in answer.chunks:
        assert chunk["object"] == "chat.completion.chunk"
        assert chunk["model"] == "demo"
        assert chunk["id"] == role["id"]
        assert chunk["system_fingerprint"].startswith("reference-")


def test_a_chat_that_does_not_stream_says_the_same(server: ReferenceServer) -> None:
    streamed = server.stream(max_tokens=20)
    whole = server.post(CHAT, {"messages": HELLO, "max_tokens": 20, "temperature": 0}).json
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": streamed.text}
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"] == streamed.usage
    assert "token_ids" not in whole["choices"][0]


def test_a_completion_stream(server: ReferenceServer) -> None:
    answer = server.stream(COMPLETIONS, prompt="The river", max_tokens=5)
    assert answer.done
    assert [chunk["object"] for chunk in answer.chunks] == ["text_completion"] * 6
    assert answer.text == server.complete("The river", max_tokens=5)["choices"][0]["text"]


def test_a_prompt_of_token_ids_is_the_same_as_its_text(server: ReferenceServer) -> None:
    ids = Tokenizer().encode("The river")
    assert server.tokens(ids) == server.tokens("The river") == server.tokens(["The river"])  # type: ignore[arg-type]
    assert server.complete(ids)["choices"][0]["prompt_token_ids"] == ids


def test_usage_on_every_chunk_counts_up(server: ReferenceServer) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = server.stream(max_tokens=4, stream_options=options)
    assert [chunk["usage"]["completion_tokens"] for chunk in answer.chunks] == [0, 1, 2, 3, 4, 4]


def test_no_usage_and_no_ids_unless_asked_for(server: ReferenceServer) -> None:
    answer = server.stream(max_tokens=4, stream_options=None, return_token_ids=False)
    assert answer.done
    assert answer.usage is None
    assert answer.token_ids == []
    assert not any("usage" in chunk for chunk in answer.chunks)


def test_max_completion_tokens_and_the_default_length(server: ReferenceServer) -> None:
    assert server.stream(max_tokens=None, max_completion_tokens=3).usage["completion_tokens"] == 3
    rest = server.stream(max_tokens=None).usage
    assert rest["total_tokens"] == 256  # the rest of the context
    assert len(server.tokens("The river", max_tokens=None)) == 16


def test_a_stop_string_ends_the_text_before_it(server: ReferenceServer) -> None:
    whole = server.complete("The river", max_tokens=40)["choices"][0]["text"]
    stop = whole[20:25]
    before = whole[: whole.index(stop)]
    cut = server.complete("The river", max_tokens=40, stop=[stop])
    assert (cut["choices"][0]["text"], cut["choices"][0]["finish_reason"]) == (before, "stop")
    streamed = server.stream(COMPLETIONS, prompt="The river", max_tokens=40, stop=stop)
    assert streamed.text == before
    assert streamed.done


def test_the_end_of_turn_is_a_stop(server: ReferenceServer) -> None:
    bias = {str(END): 100}
    ended = server.complete("The river", logit_bias=bias)["choices"][0]
    assert (ended["finish_reason"], ended["token_ids"], ended["text"]) == ("stop", [END], "")
    assert len(server.tokens("The river", logit_bias=bias, min_tokens=3)) == 4
    assert len(server.tokens("The river", logit_bias=bias, ignore_eos=True)) == 8


def test_a_character_of_two_tokens_is_never_sent_in_halves(server: ReferenceServer) -> None:
    """Single bytes are forced out one after the other: both halves of a character never make one, so each comes out
    as U+FFFD, and only once it is certain."""
    lead = Tokenizer().encode("ç")[0]
    answer = server.stream(COMPLETIONS, prompt="x", max_tokens=3, logit_bias={str(lead): 100})
    assert [chunk["choices"][0]["text"] for chunk in answer.chunks[:3]] == ["", "\ufffd", "\ufffd\ufffd"]


def test_sampling_with_a_seed_repeats_itself(server: ReferenceServer) -> None:
    hot = {"temperature": 1.0, "seed": 5, "top_p": 0.95, "max_tokens": 12}
    assert server.tokens("The river", **hot) == server.tokens("The river", **hot)
    assert server.tokens("The river", **hot) != server.tokens("The river", **{**hot, "seed": 6})


def test_fields_nobody_knows_are_accepted_as_vllm_does(server: ReferenceServer) -> None:
    assert server.tokens("The river", cache_salt="\ud800") == server.tokens("The river")
    extra = {"no_such_field": 1, "cache_salt": "ab12", "user": "me", "chat_template_kwargs": {"thinking": False}}
    assert server.tokens("The river", **extra) == server.tokens("The river")


def test_the_request_id_is_in_the_answer(server: ReferenceServer) -> None:
    body = {"messages": HELLO, "max_tokens": 1}
    assert server.request("POST", CHAT, body, {"X-Request-Id": "r-17"}).json["id"] == "chatcmpl-r-17"


BAD_FIELDS: list[tuple[str, Any]] = [
    ("max_tokens", 0),
    ("max_tokens", 10**6),
    ("max_tokens", "5"),
    ("temperature", -1),
    ("temperature", True),
    ("n", 2),
    ("logprobs", 0),
    ("tools", [{"type": "function"}]),
    ("stop", [""]),
    ("logit_bias", {"99999": 1}),
    ("logit_bias", {"5": 101}),
    ("stream", "yes"),
    ("stream_options", {"include_usage": True}),
    ("cache_salt", "a/b"),
    ("cache_salt", "x" * 129),
    ("seed", -1),
    ("messages", []),
    ("messages", [{"role": "nobody", "content": "x"}]),
    ("messages", [{"role": "user", "content": 5}]),
    ("messages", ["x"]),
]


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS)
def test_a_wrong_field_is_a_400_that_names_it(server: ReferenceServer, field: str, value: Any) -> None:
    answer = server.post(CHAT, {"messages": HELLO, field: value})
    assert answer.status == 400
    error = answer.json["error"]
    assert (error["type"], error["code"], error["param"]) == ("BadRequestError", 400, field)
    assert error["message"]


@pytest.mark.parametrize("prompt", [None, "", [], [1.5], [10**9], [True], ["a", "b"], [-1]])
def test_a_wrong_prompt_is_a_400(server: ReferenceServer, prompt: Any) -> None:
    answer = server.post(COMPLETIONS, {"prompt": prompt})
    assert (answer.status, answer.json["error"]["param"]) == (400, "prompt")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'"x"', b"[" * 100_000])
def test_a_body_that_is_not_a_json_object_is_a_400(server: ReferenceServer, raw: bytes) -> None:
    answer = server.request("POST", CHAT, raw=raw)
    assert (answer.status, answer.json["error"]["code"]) == (400, 400)


def test_a_prompt_longer_than_the_context_is_a_400_that_says_so(server: ReferenceServer) -> None:
    answer = server.post(COMPLETIONS, {"prompt": [9] * 256})
    assert answer.status == 400
    assert "maximum context length is 256 tokens" in answer.json["error"]["message"]
    assert server.post(COMPLETIONS, {"prompt": [9] * 255}).json["usage"]["completion_tokens"] == 1


def test_another_model_is_a_404(server: ReferenceServer) -> None:
    answer = server.post(CHAT, {"model": "other", "messages": HELLO})
    assert (answer.status, answer.json["error"]["type"]) == (404, "NotFoundError")
    assert "`other`" in answer.json["error"]["message"]
    assert server.post(CHAT, {"model": "alias", "messages": HELLO, "max_tokens": 1}).json["model"] == "alias"


def test_what_it_says_about_itself(server: ReferenceServer) -> None:
    cards = server.get("/v1/models").json["data"]
    assert [(card["id"], card["max_model_len"]) for card in cards] == [("demo", 256), ("alias", 256)]
    health = server.get("/health")
    assert (health.status, health.body) == (200, b"")
    assert server.get("/ping").status == 200
    assert server.get("/version").json == {"version": "0.1.0"}
    assert server.get("/nothing").status == 404
    assert server.get(CHAT).status == 405
    assert server.request("POST", "/health").status == 405


def test_one_connection_serves_many_requests_whole_and_streamed(server: ReferenceServer) -> None:
    connection = server.connect()
    for stream in (True, False, True):
        connection.request("POST", CHAT, json.dumps({"messages": HELLO, "max_tokens": 2, "stream": stream}))
        response = connection.getresponse()
        assert response.status == 200
        assert response.read()
        assert not response.will_close
    connection.close()


def test_requests_sent_in_one_go_are_answered_in_order(server: ReferenceServer) -> None:
    connection = server.connect()
    connection.connect()
    body = json.dumps({"prompt": "a", "max_tokens": 2}).encode()
    post = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    connection.sock.sendall(post + b"GET /version HTTP/1.1\r\nConnection: close\r\n\r\n")
    raw = b"".join(iter(lambda: connection.sock.recv(65536), b""))
    connection.close()
    assert raw.count(b"HTTP/1.1 200 OK") == 2
    assert raw.index(b"text_completion") < raw.index(b'"version"')


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
    ],
)
def test_what_is_not_http_is_told_and_the_connection_closed(server: ReferenceServer, head: bytes, status: int) -> None:
    connection = server.connect()
    connection.connect()
    connection.sock.sendall(head)
    raw = b"".join(iter(lambda: connection.sock.recv(65536), b""))
    connection.close()
    assert raw.startswith(b"HTTP/1.1 %d " % status)
    assert server.get("/health").status == 200


def test_an_old_client_gets_a_stream_that_ends_with_the_connection(server: ReferenceServer) -> None:
    connection = server.connect()
    connection.connect()
    body = json.dumps({"messages": HELLO, "max_tokens": 2, "stream": True}).encode()
    connection.sock.sendall(b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (CHAT.encode(), len(body), body))
    raw = b"".join(iter(lambda: connection.sock.recv(65536), b""))
    connection.close()
    assert b"transfer-encoding" not in raw
    assert raw.endswith(b"data: [DONE]\n\n")


def test_a_key_is_asked_for_where_vllm_asks_for_it() -> None:
    with ReferenceServer("--api-key", "s3cret", "other") as guarded:
        assert guarded.get("/health").status == 200
        assert guarded.get("/metrics").status == 200
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "s3cret"},
            {"Authorization": "Bearer"},
        ):
            refused = guarded.request("GET", "/v1/models", headers=headers)
            assert (refused.status, refused.json) == (401, {"error": "Unauthorized"})
        for key in ("s3cret", "other"):
            assert guarded.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"}).status == 200
        assert "s3cret" not in guarded.log
