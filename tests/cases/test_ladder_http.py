"""The HTTP rungs against a real server that fails at each of them in turn."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lanectl.core.health import HttpSample, HttpTarget, Kind, Reason, Rung, judge_http
from lanectl.core.lane import Completion
from lanectl.probes.http import HttpProber, has_token
from tests.support.ladder_server import (
    CHAT,
    COMPLETIONS,
    HEALTH,
    MAX_MODEL_LEN,
    MODEL,
    MODELS,
    LadderServer,
    Reply,
    completion,
    models,
)

SHORT_S = 0.3  # a deadline that a fault must run into
LONG_S = 20.0  # a deadline that nothing here should come near


@pytest.fixture
def server() -> Iterator[LadderServer]:
    with LadderServer() as server:
        yield server


def target(server: LadderServer, *, within_s: float = LONG_S, **changes: object) -> HttpTarget:
    asked = HttpTarget(
        server.url,
        model=MODEL,
        max_model_len=MAX_MODEL_LEN,
        completion=Completion(1, within_s),
        answer_within_s=within_s,
    )
    return replace(asked, **changes)


def climb(server: LadderServer, *, within_s: float = LONG_S, **changes: object) -> HttpSample:
    return HttpProber().http(target(server, within_s=within_s, **changes))


def verdict(sample: HttpSample) -> tuple[Reason, bool]:
    judged = judge_http(sample)
    return judged.reason, judged.final


def test_a_server_that_is_well_is_asked_every_rung_and_is_ready(server: LadderServer) -> None:
    sample = climb(server)
    assert sample.failed is None
    assert sample.models == (MODEL,)
    assert sample.model == MODEL
    assert sample.seconds is not None
    assert server.paths() == [HEALTH, MODELS, COMPLETIONS]
    body = server.asked[-1][2]
    assert (body["model"], body["max_tokens"]) == (MODEL, 1)


def test_nothing_listens(server: LadderServer) -> None:
    server.close()
    sample = climb(server)
    assert (sample.failed, sample.kind) == (Rung.PORT, Kind.REFUSED)
    assert verdict(sample) == (Reason.STARTING, False)


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_server_that_still_loads_is_starting(server: LadderServer, status: int) -> None:
    server.replies[HEALTH] = Reply(status)
    assert verdict(climb(server)) == (Reason.STARTING, False)
    assert server.paths() == [HEALTH]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("path", [HEALTH, MODELS, COMPLETIONS])
def test_T07_a_redirect_is_never_followed(server: LadderServer, path: str, status: int) -> None:
    with LadderServer() as elsewhere:
        server.replies[path] = Reply(status, headers={"Location": elsewhere.url + path})
        sample = climb(server)
        assert verdict(sample) == (Reason.MISCONFIGURED, True)
        assert elsewhere.url in sample.detail
        assert elsewhere.asked == []


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize("path", [HEALTH, MODELS])
def test_T07_a_host_check_or_a_missing_path_is_misconfigured(server: LadderServer, path: str, status: int) -> None:
    server.replies[path] = Reply(status, {"error": {"message": "Invalid Host header"}})
    sample = climb(server)
    assert verdict(sample) == (Reason.MISCONFIGURED, True)
    assert "Invalid Host header" in sample.detail


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("path", [HEALTH, MODELS, COMPLETIONS])
def test_T07_401_and_403_are_about_the_key(server: LadderServer, path: str, status: int) -> None:
    server.replies[path] = Reply(status)
    sample = climb(server)
    assert (sample.failed, verdict(sample)) == (Rung.AUTH, (Reason.AUTH, True))


def test_T07_proxies_of_the_environment_are_not_used(server: LadderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert climb(server).failed is None


def test_the_key_is_sent_and_appears_in_no_sample() -> None:
    with LadderServer(api_key="sk-right") as server:
        assert climb(server, api_key="sk-right").failed is None
        refused = climb(server, api_key="sk-wrong")
        assert (refused.failed, refused.status) == (Rung.AUTH, 401)
        assert "not accepted" in refused.detail
        assert "sk-wrong" not in refused.detail
        assert "none was sent" in climb(server).detail


def test_a_key_that_no_header_can_carry_is_refused_before_it_is_sent(server: LadderServer) -> None:
    sample = climb(server, api_key="sk-a\r\nX: b")
    assert (sample.failed, sample.kind) == (Rung.AUTH, Kind.AUTH)
    assert "sk-a" not in sample.detail
    assert server.asked == []


@pytest.mark.parametrize(
    "listed",
    [models("other"), models(), models(MODEL, max_model_len=1024), models(MODEL, max_model_len=None)],
)
def test_the_wrong_model_is_final(server: LadderServer, listed: object) -> None:
    server.replies[MODELS] = Reply(body=listed)
    sample = climb(server)
    assert (sample.failed, verdict(sample)) == (Rung.MODELS, (Reason.WRONG_MODEL, True))
    assert COMPLETIONS not in server.paths()


def test_a_completion_for_an_unknown_model_is_the_wrong_model(server: LadderServer) -> None:
    error = {"error": {"message": "The model does not exist.", "type": "NotFoundError", "param": "model", "code": 404}}
    server.replies[COMPLETIONS] = server.replies[CHAT] = Reply(404, error)
    assert verdict(climb(server, models=False)) == (Reason.WRONG_MODEL, True)


@pytest.mark.parametrize("body", [{}, {"data": "tiny"}, {"data": ["tiny"]}, [], "x", None])
def test_a_list_of_models_that_is_none_is_misconfigured(server: LadderServer, body: object) -> None:
    server.replies[MODELS] = Reply(body=body)
    sample = climb(server)
    assert (sample.kind, verdict(sample)) == (Kind.BAD_ANSWER, (Reason.MISCONFIGURED, True))


def test_without_a_model_the_first_listed_is_asked(server: LadderServer) -> None:
    server.replies[MODELS] = Reply(body=models("a", "b"))
    sample = climb(server, model=None, models=False)
    assert (sample.failed, sample.model) == (None, "a")
    assert server.asked[-1][2]["model"] == "a"


def test_a_chat_only_server_is_asked_over_chat_once(server: LadderServer) -> None:
    message = {"role": "assistant", "content": "Paris"}
    server.replies[COMPLETIONS] = Reply(404)
    server.replies[CHAT] = Reply(body={"choices": [{"message": message}], "usage": {"completion_tokens": 1}})
    assert climb(server).failed is None
    assert server.paths() == [HEALTH, MODELS, COMPLETIONS, CHAT]


def test_T02_health_200_but_generation_hangs(server: LadderServer) -> None:
    server.replies[COMPLETIONS] = Reply(hang=True)
    sample = HttpProber().http(replace(target(server), completion=Completion(1, SHORT_S)))
    assert (sample.failed, verdict(sample)) == (Rung.COMPLETION, (Reason.HUNG, True))


def test_T02_both_endpoints_share_the_one_deadline(server: LadderServer) -> None:
    server.replies[COMPLETIONS] = Reply(404)
    server.replies[CHAT] = Reply(hang=True)
    sample = HttpProber().http(replace(target(server), completion=Completion(1, SHORT_S)))
    assert verdict(sample) == (Reason.HUNG, True)


@pytest.mark.parametrize("path", [HEALTH, MODELS])
def test_a_rung_that_does_not_answer_is_hung_but_may_be_busy_booting(server: LadderServer, path: str) -> None:
    server.replies[path] = Reply(hang=True)
    sample = climb(server, within_s=SHORT_S)
    assert (sample.kind, verdict(sample)) == (Kind.TIMEOUT, (Reason.HUNG, False))


@pytest.mark.parametrize(
    "raw", [None, b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000, b"HTTP/1.1 200 OK\r\n\r\n" + b"z" * 1000]
)
def test_bytes_that_drip_for_ever_hold_nobody(server: LadderServer, raw: bytes | None) -> None:
    server.replies[HEALTH] = Reply(drip_s=SHORT_S / 10, raw=raw)
    began = time.monotonic()
    sample = climb(server, within_s=SHORT_S)
    assert sample.kind is Kind.TIMEOUT
    assert time.monotonic() - began < LONG_S  # 1000 bytes would take 30 s


def test_a_slow_answer_that_comes_in_time_is_an_answer(server: LadderServer) -> None:
    for reply in server.replies.values():
        reply.drip_s = 0.001
    assert climb(server).failed is None


def test_an_answer_that_ends_with_the_connection_is_an_answer(server: LadderServer) -> None:
    body = json.dumps(models(MODEL)).encode()
    server.replies[MODELS] = Reply(raw=b"HTTP/1.0 200 OK\r\n\r\n" + body)
    assert climb(server).failed is None


def test_an_answer_without_end_is_cut_off(server: LadderServer) -> None:
    server.replies[HEALTH] = Reply(raw=b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (5 * 1024 * 1024))
    assert climb(server).kind is Kind.BAD_ANSWER


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(cut=True), Kind.CUT),
        (Reply(raw=b""), Kind.CUT),
        (Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), Kind.CUT),
        (Reply(raw=b"220 mail.example.org ESMTP\r\n"), Kind.BAD_ANSWER),
        (Reply(raw=b"HTTP/1.1 banana\r\n\r\n"), Kind.BAD_ANSWER),
    ],
)
def test_what_is_no_whole_http_answer_is_reported_not_raised(server: LadderServer, reply: Reply, kind: Kind) -> None:
    server.replies[HEALTH] = reply
    sample = climb(server)
    assert (sample.failed, sample.kind) == (Rung.HEALTH, kind)


def test_tls_asked_of_a_plain_server_is_misconfigured(server: LadderServer) -> None:
    sample = climb(server, base_url=server.url.replace("http:", "https:"))
    assert (sample.failed, verdict(sample)) == (Rung.PORT, (Reason.MISCONFIGURED, True))


def test_a_name_without_an_address_cannot_be_told(server: LadderServer) -> None:
    sample = climb(server, base_url="http://nobody.invalid:1")
    assert (sample.failed, verdict(sample)) == (Rung.PORT, (Reason.UNREACHABLE, False))


def test_a_connection_that_is_never_accepted_cannot_be_told() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(8)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        sample = HttpProber().http(HttpTarget(url, connect_within_s=SHORT_S))
        for client in waiting:
            client.close()
    assert (sample.failed, verdict(sample)) == (Rung.PORT, (Reason.UNREACHABLE, False))


def test_the_exact_health_status_is_asked_for(server: LadderServer) -> None:
    server.replies[HEALTH] = Reply(204)
    assert verdict(climb(server)) == (Reason.MISCONFIGURED, False)
    assert climb(server, health_status=204).failed is None


def test_a_prefix_of_the_url_is_kept_and_odd_characters_are_quoted(server: LadderServer) -> None:
    climb(server, base_url=server.url + "/prefix/", health="/über health")
    assert server.paths() == ["/prefix/%C3%BCber%20health"]


def test_what_a_server_says_is_shown_as_one_printable_line(server: LadderServer) -> None:
    server.replies[MODELS] = Reply(404, {"error": {"message": "no\x1b[2Jsuch\npath"}})
    assert "nosuch path" in climb(server).detail


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (completion(), True),
        (completion(tokens=1, text=""), True),
        (completion(tokens=0, text=" Paris"), True),
        (completion(tokens=0, text=""), False),
        ({"choices": [], "usage": {"completion_tokens": 1}}, False),
        ({"error": {"message": "engine dead"}, "choices": [{"text": "x"}]}, False),
        ({"error": {"message": "engine dead"}}, False),
        ({"choices": [{"message": {"content": None, "reasoning_content": "Hm"}}]}, True),
        ({"choices": [{"message": {"content": ""}}]}, False),
        ({"choices": [{"text": "", "token_ids": [7]}]}, True),
        ({"choices": ["x"]}, False),
        ({"choices": "x", "usage": 3}, False),
        ({}, False),
    ],
)
def test_a_completion_holds_a_real_token_or_is_none(
    server: LadderServer, answer: dict[str, object], expected: bool
) -> None:
    assert has_token(answer) is expected
    server.replies[COMPLETIONS] = Reply(body=answer)
    sample = climb(server)
    assert (sample.failed is None) is expected
    assert expected or verdict(sample) == (Reason.HUNG, True)


def test_json_that_is_hostile_is_no_answer(server: LadderServer) -> None:
    deep = json.dumps("x").encode().join((b"[" * 50000, b"]" * 50000))
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(deep)
    server.replies[MODELS] = Reply(raw=head + deep)
    assert climb(server).kind is Kind.BAD_ANSWER
