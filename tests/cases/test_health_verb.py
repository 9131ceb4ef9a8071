"""`lanectl health`: a real server, the reason and the published exit code for each of its states."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.actions import health
from lanectl.actions.health import HealthReport, base_url_of, check_lane, check_url
from lanectl.clock import SystemClock
from lanectl.core.health import HttpSample, HttpTarget, Reason
from lanectl.core.lane import Completion, Lane, Ready, Service
from lanectl.errors import ExitCode, LaneError
from lanectl.ports import PortOwner
from lanectl.probes.http import HttpProber
from tests.support.ladder_server import (
    CHAT,
    COMPLETIONS,
    HEALTH,
    MAX_MODEL_LEN,
    MODEL,
    MODELS,
    LadderServer,
    Reply,
    models,
)

CLOCK = SystemClock()
SOON = Completion(1, 0.3)


@pytest.fixture
def server() -> Iterator[LadderServer]:
    with LadderServer() as server:
        yield server


def check(url: str, **options: object) -> HealthReport:
    return check_url(url, prober=HttpProber(), clock=CLOCK, **options)  # type: ignore[arg-type]


def lane_of(server: LadderServer, ready: Ready | None) -> Lane:
    service = Service("server", "dsv41", "sha256:1", ready=ready)
    return Lane("v23", None, "", MODEL, MAX_MODEL_LEN, "0.0.0.0", server.port, (service,))


def check_its_lane(server: LadderServer) -> HealthReport:
    lane = lane_of(server, Ready(health="/health", models=True, completion=SOON))
    return check_lane(lane, prober=HttpProber(), clock=CLOCK)


def test_a_server_that_is_well_exits_0_with_its_own_model(server: LadderServer) -> None:
    report = check(server.url)
    assert (report.reason, report.exit_code, report.model) == (Reason.READY, 0, MODEL)
    assert server.asked[-1][2]["model"] == MODEL


@pytest.mark.parametrize("suffix", ["/", "/v1", "/v1/"])
def test_the_url_may_be_the_one_clients_use(server: LadderServer, suffix: str) -> None:
    assert check(server.url + suffix).exit_code == 0


def test_a_refused_connection_exits_1(server: LadderServer) -> None:
    server.close()
    report = check(server.url)
    assert report.exit_code == ExitCode.FAILED
    assert "nothing listens" in report.detail


def test_the_wrong_model_exits_1(server: LadderServer) -> None:
    report = check(server.url, model="other")
    assert (report.reason, report.exit_code) == (Reason.WRONG_MODEL, 1)


def test_T02_a_server_that_hangs_behind_a_good_health_path_exits_1(server: LadderServer) -> None:
    server.replies[COMPLETIONS] = Reply(hang=True)
    report = check(server.url, completion=SOON)
    assert (report.reason, report.exit_code) == (Reason.HUNG, 1)


def test_T02_an_error_with_status_200_is_not_well(server: LadderServer) -> None:
    server.replies[COMPLETIONS] = Reply(body={"error": {"message": "EngineDeadError"}})
    report = check(server.url)
    assert (report.reason, report.exit_code) == (Reason.HUNG, 1)
    assert "EngineDeadError" in report.detail


@pytest.mark.parametrize(
    ("path", "reply", "reason"),
    [
        (HEALTH, Reply(503), Reason.STARTING),
        (HEALTH, Reply(302, headers={"Location": "/login"}), Reason.MISCONFIGURED),
        (MODELS, Reply(401), Reason.AUTH),
        (MODELS, Reply(body=models()), Reason.WRONG_MODEL),
        (COMPLETIONS, Reply(500), Reason.HUNG),
    ],
)
def test_T07_whatever_else_is_wrong_exits_1_with_its_reason(
    server: LadderServer, path: str, reply: Reply, reason: Reason
) -> None:
    server.replies[path] = reply
    report = check(server.url)
    assert (report.reason, report.exit_code) == (reason, ExitCode.FAILED)


def test_a_chat_only_server_is_well(server: LadderServer) -> None:
    server.replies[COMPLETIONS] = Reply(404)
    server.replies[CHAT] = Reply(body={"choices": [{"message": {"content": "Paris"}}]})
    assert check(server.url).exit_code == 0


def test_a_name_without_an_address_exits_7() -> None:
    report = check("http://nobody.invalid:30006")
    assert (report.reason, report.exit_code) == (Reason.UNREACHABLE, ExitCode.UNREACHABLE)


class Lost:
    """A prober whose name lookup never comes back."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def http(self, target: HttpTarget) -> HttpSample:
        self.over.wait()
        return HttpSample(None)

    def port(self, host: str, port: int) -> PortOwner:
        raise NotImplementedError

    def can_bind(self, host: str, port: int) -> bool:
        raise NotImplementedError


def test_an_answer_that_never_comes_exits_7(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOOKUP_WITHIN_S", 0.0)
    monkeypatch.setattr(health, "RUNGS", 0)  # leaves the completion's 0.3 s
    lost = Lost()
    report = check_url("http://server.example", prober=lost, clock=CLOCK, completion=SOON)
    lost.over.set()
    assert (report.reason, report.exit_code) == (Reason.UNREACHABLE, ExitCode.UNREACHABLE)


def test_a_lane_is_asked_what_its_spec_says(server: LadderServer) -> None:
    assert check_its_lane(server).exit_code == 0
    server.replies[MODELS] = Reply(body=models(MODEL, max_model_len=MAX_MODEL_LEN // 2))
    assert check_its_lane(server).reason is Reason.WRONG_MODEL


def test_T02_a_lane_whose_spec_asks_for_no_completion_gets_one_all_the_same(server: LadderServer) -> None:
    lane = lane_of(server, Ready(health="/health"))
    assert check_lane(lane, prober=HttpProber(), clock=CLOCK).exit_code == 0
    assert server.paths() == [HEALTH, COMPLETIONS]


def test_a_lane_that_is_not_asked_over_http_is_a_usage_error(server: LadderServer) -> None:
    with pytest.raises(LaneError) as caught:
        check_lane(lane_of(server, Ready(log="^serving")), prober=HttpProber(), clock=CLOCK)
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    "url",
    [
        *("", "v23", "127.0.0.1:30006", "ftp://host", "http://", "http://host:99999", "http://host:x", "http://host:0"),
        *("http://user:secret@host", "http://user:secret@host:x", "http://host/?key=1", "http://[::1", "http://a..b"),
        "http://" + "ü" * 80,
    ],
)
def test_what_is_no_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(LaneError) as caught:
        base_url_of(url)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "secret" not in caught.value.message


@given(st.text())
def test_any_text_is_a_url_or_a_usage_error(text: str) -> None:
    for url in (text, "http://" + text, "http://host/" + text):
        with contextlib.suppress(LaneError):  # anything else, a traceback for the person, fails here
            assert base_url_of(url).startswith(("http://", "https://"))


def test_the_detail_of_a_time_out_names_the_rung(server: LadderServer) -> None:
    server.replies[COMPLETIONS] = Reply(hang=True)
    report = check(server.url, completion=replace(SOON, within_s=0.2))
    assert COMPLETIONS in report.detail
