"""From reads with given arrival times to a record: which moment is which, and nothing a server sends makes it raise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.core import stats
from lanectl.measure.client import Capture
from lanectl.measure.record import Asked, RequestRecord, read_capture

MS = 1_000_000
SENT = 1000 * MS
ASKED = Asked("cell", "request-1", "prompt-1", "Say something.")
DONE = b"data: [DONE]\n\n"


def event(message: Any) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def chunk(delta: dict[str, Any], ids: list[int] | None = None, finish: str | None = None) -> bytes:
    choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = ids
    return event({"choices": [choice]})


def usage(completion: int, **more: Any) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": completion, **more}})


def record(*reads: tuple[int, bytes], status: int = 200) -> RequestRecord:
    """The record of a request sent at SENT whose body came in these (ms after SENT, bytes) reads."""
    capture = Capture(t_send=SENT, status=status, reads=[(SENT + at * MS, piece) for at, piece in reads])
    return read_capture(ASKED, capture)


def test_each_moment_is_where_its_chunk_arrived() -> None:
    found = record(
        (10, chunk({"role": "assistant", "content": ""})),
        (20, chunk({"reasoning": "hm"}, [1, 2])),
        (30, chunk({"content": ""}, [3])),  # a step whose text a parser swallowed
        (40, chunk({"content": "yes"}, [4])),
        (50, chunk({"content": "!"}, [5, 6], "stop")),
        (60, usage(6) + DONE),
    )
    assert found.error is None
    moments = (found.t_first_chunk, found.t_first_token, found.t_first_answer, found.t_last_token)
    assert moments == (SENT + 10 * MS, SENT + 20 * MS, SENT + 40 * MS, SENT + 50 * MS)
    assert found.chunks == ((10 * MS, 0), (20 * MS, 2), (30 * MS, 1), (40 * MS, 1), (50 * MS, 2))
    assert found.n_first == 2
    sample = found.sample()
    assert stats.ttft_s(sample) == pytest.approx(0.020)
    assert stats.ttfa_s(sample) == pytest.approx(0.040)
    assert stats.decode_tps(sample) == pytest.approx(4 / 0.030)
    assert stats.chunk_gaps_ms([sample]) == [10.0, 10.0, 10.0]


def test_an_event_cut_by_the_network_has_arrived_when_it_is_complete() -> None:
    whole = chunk({"content": "a"}, [1], "length")
    found = record((10, whole[:20]), (15, whole[20:-1]), (20, whole[-1:]), (25, usage(1) + DONE))
    assert found.t_first_token == SENT + 20 * MS


def test_a_tool_call_is_a_first_token_and_an_answer() -> None:
    call = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}
    found = record((10, chunk(call, [1])), (20, chunk({}, [2], "tool_calls")), (30, usage(2) + DONE))
    assert found.ok
    assert found.t_first_token == found.t_first_answer == SENT + 10 * MS
    assert found.t_last_token == SENT + 20 * MS


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_text_under_both_of_its_names(name: str) -> None:
    found = record((10, chunk({name: "hm"})), (20, chunk({"content": "yes"}, finish="stop")), (30, usage(5) + DONE))
    assert found.ok
    assert (found.t_first_token, found.t_first_answer) == (SENT + 10 * MS, SENT + 20 * MS)


def test_details_of_the_usage_are_kept_where_given() -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 1}, "prompt_tokens_details": {"cached_tokens": 4}}
    found = record((10, chunk({"content": "a"}, [1], "stop")), (20, usage(1, **details) + DONE))
    assert (found.prompt_tokens, found.reasoning_tokens, found.cached_tokens) == (7, 1, 4)
    bare = record((10, chunk({"content": "a"}, [1], "stop")), (20, usage(1) + DONE))
    assert (bare.reasoning_tokens, bare.cached_tokens) == (None, None)


def test_a_usage_on_the_last_choice_counts_and_is_no_running_count() -> None:
    last = {"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 9}}
    found = record((10, chunk({"content": "a"})), (20, event(last) + DONE))
    assert found.ok
    assert (found.completion_tokens, found.token_source) == (9, "final_usage")


def test_a_running_usage_that_goes_backwards_fails() -> None:
    def counted(total: int, finish: str | None = None) -> bytes:
        choice = {"delta": {"content": "a"}, "finish_reason": finish}
        return event({"choices": [choice], "usage": {"completion_tokens": total}})

    found = record((10, counted(3)), (20, counted(2)), (30, counted(4, "stop")), (40, usage(4) + DONE))
    assert str(found.error).startswith("token_mismatch")


def test_an_empty_answer_fails() -> None:
    found = record((10, chunk({"content": ""}, [], "stop")), (20, usage(0) + DONE))
    assert str(found.error).startswith("no_tokens")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"data: {\n\n", "bad_json"),
        (b"data: \xff\xfe\n\n", "bad_json"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "bad_json"),
        (b"data: 7\n\n", "bad_chunk"),
        (event({"choices": "what"}), "bad_chunk"),
        (event({"choices": [7]}), "bad_chunk"),
        (event({"error": {"message": "no"}}), "error_event"),
        (b"event: error\ndata: no\n\n", "error_event"),
        (b"<html>not a stream</html>", "no_done"),
        (b"", "no_done"),
    ],
)
def test_what_is_no_chat_stream_fails_with_its_reason(body: bytes, reason: str) -> None:
    assert str(record((10, body)).error).startswith(reason)
    good_start = chunk({"content": "a"}, [1])
    assert str(record((5, good_start), (10, body + b"\n\n" + DONE)).error).startswith(
        ("bad", "error", "no_finish_reason")
    )


# One value of every JSON type, in the shapes that a chunk has somewhere.
PLAIN = [None, True, 0, -1, 5, 1.5, float("nan"), "", "stop", "x"]
NESTED = [[], [1], [[2]], [None], {}, {"content": 7}, {"reasoning_tokens": 1}, {"completion_tokens": 3}]
JSON = st.sampled_from(PLAIN) | st.sampled_from(NESTED)


@st.composite
def messages(draw: st.DrawFn) -> Any:
    """JSON that looks like a chat chunk, with anything at all in any of its places."""
    message = {name: draw(JSON) for name in draw(st.sets(st.sampled_from(["error", "usage", "system_fingerprint"])))}
    names = draw(st.sets(st.sampled_from(["delta", "finish_reason", "token_ids"])))
    choice = {name: draw(JSON) for name in names}
    if draw(st.booleans()):
        choice["delta"] = {name: draw(JSON) for name in ("content", "reasoning", "tool_calls")}
    message["choices"] = draw(st.just([choice]) | JSON)
    if draw(st.booleans()):
        message["usage"] = {"completion_tokens": draw(JSON), "completion_tokens_details": draw(JSON)}
    return draw(st.just(message) | JSON)


@given(st.lists(messages().map(event) | st.binary(max_size=30) | st.just(DONE), max_size=6))
def test_no_answer_makes_the_record_raise(pieces: list[bytes]) -> None:
    found = record(*enumerate(pieces))
    assert json.loads(json.dumps(found.to_json()))["request_id"] == "request-1"
    if found.ok:
        assert found.sample().tokens >= 1
