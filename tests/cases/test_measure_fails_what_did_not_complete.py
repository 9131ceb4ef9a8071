"""A request that did not complete has failed, with the reason; a hang ends with a name and never lasts."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace

import pytest

from lanectl.measure.client import Endpoint, RequestShape, Stream
from lanectl.measure.driver import Deadlines, run_together
from tests.support.measuring import ALL_SOON, FIRST_BYTE_SOON, PATIENT, nothing, one_request
from tests.support.mock_engine import MODEL, Behaviour, MockEngine
from tests.support.poll import until

FAULTS = {
    "an error inside a 200, then [DONE]": (Behaviour(error_at=3), "error_event"),
    "an error as the first word": (Behaviour(error_at=0, role_first=False), "error_event"),
    "the connection cut": (Behaviour(cut_at=3), "cut"),
    "the connection cut, no length known": (Behaviour(cut_at=3, close_after=True), "no_done"),
    "an end without [DONE]": (Behaviour(end_at=3), "no_done"),
    "everything but [DONE]": (Behaviour(done=False), "no_done"),
    "no usage": (Behaviour(usage=False, ignores=frozenset({"continuous_usage_stats"})), "no_usage"),
    "usage says more than came": (Behaviour(usage_off_by=1), "token_mismatch"),
    "usage says less than came": (Behaviour(usage_off_by=-1), "token_mismatch"),
    "no finish reason": (Behaviour(finish_reason=None), "no_finish_reason"),
    "aborted by the server": (Behaviour(finish_reason="abort"), "bad_finish"),
    "HTTP 500": (Behaviour(status=500), "http: status 500"),
    "HTTP 401": (Behaviour(status=401), "http: status 401"),
    "a redirect, which is not followed": (Behaviour(status=307), "http: status 307"),
    "words that are no JSON": (Behaviour(words=("\x00",), write_size=9), None),
}


@pytest.mark.parametrize(("behaviour", "reason"), FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_has_its_reason(behaviour: Behaviour, reason: str | None) -> None:
    with MockEngine(behaviour) as engine:
        record = one_request(engine.url)
    if reason is None:  # the control: strange, but complete
        assert record.ok
        return
    assert record.error is not None
    assert record.error.startswith(reason)
    with pytest.raises(ValueError, match="is not OK"):
        record.sample()


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: the port refuses
        record = one_request(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert record.error is not None
    assert record.error.startswith("connect:")
    assert record.t_send is None


@pytest.mark.parametrize(
    ("behaviour", "deadlines", "reason"),
    [
        (Behaviour(hang_before_headers=True), FIRST_BYTE_SOON, "no_first_byte: nothing came within 0.4 s"),
        (Behaviour(drip_headers=True), FIRST_BYTE_SOON, "no_first_byte: nothing came within 0.4 s"),
        (Behaviour(hang_at=0, role_first=False), FIRST_BYTE_SOON, "no_first_byte: nothing came within 0.4 s"),
        (Behaviour(hang_at=2), ALL_SOON, "deadline: not finished within 0.8 s"),
        (Behaviour(step_s=0.1), ALL_SOON, "deadline: not finished within 0.8 s"),
    ],
    ids=["no headers", "headers for ever", "headers and nothing more", "stops half-way", "too slow"],
)
def test_T02_health_200_but_generation_hangs(behaviour: Behaviour, deadlines: Deadlines, reason: str) -> None:
    with MockEngine(behaviour) as engine:
        begin = time.monotonic()
        record = one_request(engine.url, deadlines=deadlines)
        took_s = time.monotonic() - begin
    assert record.error == reason
    assert took_s < 10, "the deadline ended it, not the test's own patience"
    assert record.t_done is not None


def test_the_limit_for_connecting_is_no_limit_for_the_answer() -> None:
    with MockEngine(Behaviour(step_s=0.7)) as engine:
        record = one_request(engine.url, max_tokens=2, deadlines=Deadlines(0.3, first_byte_s=20, whole_s=30))
    assert record.error is None


def _streams(engine: MockEngine, count: int) -> list[Stream]:
    shape = RequestShape(MODEL, 50)
    return [Stream(Endpoint.parse(engine.url), shape.body("x", "5a17"), f"r{i}") for i in range(count)]


def test_a_stop_ends_every_stream_and_thread_and_passes_on() -> None:
    class Stop(Exception):
        pass

    before = threading.active_count()
    with MockEngine(Behaviour(hang_at=1)) as engine:
        streams = _streams(engine, 8)

        def check() -> None:
            if all(stream.capture.t_first_byte is not None for stream in streams):
                raise Stop

        with pytest.raises(Stop):
            run_together(streams, PATIENT, check)
        for stream in streams:
            assert stream.capture.failure == "aborted: the measurement was stopped"
            assert stream.capture.t_done is not None
    until(lambda: threading.active_count() <= before, 10, "all threads ended")


def test_when_a_thread_cannot_start_the_others_do_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(threading.Thread):
        started = 0

        def start(self) -> None:
            Full.started += self.name.endswith("(follow)")  # the mock engine's threads are of this class too
            if Full.started == 3:
                raise RuntimeError("can't start new thread")
            super().start()

    before = threading.active_count()
    with MockEngine() as engine:
        streams = _streams(engine, 4)
        with monkeypatch.context() as patch:
            patch.setattr("lanectl.measure.driver.threading.Thread", Full)
            with pytest.raises(RuntimeError, match="new thread"):
                run_together(streams, PATIENT, nothing)
        assert engine.bodies == []
    until(lambda: threading.active_count() <= before, 10, "all threads ended")


def test_when_one_cannot_connect_none_is_sent() -> None:
    with socket.socket() as taken, MockEngine() as engine:
        taken.bind(("127.0.0.1", 0))
        streams = _streams(engine, 2)
        closed = Endpoint.parse(f"http://127.0.0.1:{taken.getsockname()[1]}")
        streams.append(Stream(closed, RequestShape(MODEL, 1).body("x", "5a17"), "r2"))
        run_together(streams, PATIENT, nothing)
        assert engine.bodies == []
    reasons = [str(stream.capture.failure).partition(":")[0] for stream in streams]
    assert reasons == ["not_sent", "not_sent", "connect"]


def test_a_burst_starts_together_on_open_connections() -> None:
    with MockEngine(replace(Behaviour(), step_s=0.01)) as engine:
        streams = _streams(engine, 32)
        run_together(streams, PATIENT, nothing)
    captures = [stream.capture for stream in streams]
    assert [capture.failure for capture in captures] == [None] * 32
    sched = {capture.t_sched for capture in captures}
    assert len(sched) == 1
    assert all((capture.t_send or 0) >= (capture.t_sched or 0) for capture in captures)
