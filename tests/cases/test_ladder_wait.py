"""The wait for readiness: a real HTTP server, a container whose state the test sets, and every way a boot can fail."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from lanectl.actions.errand import Errand
from lanectl.actions.look import look
from lanectl.actions.ready import ReadyReport, Served, wait_ready
from lanectl.clock import SystemClock
from lanectl.core.container import Status
from lanectl.core.health import HttpSample, HttpTarget, Kind, Owner, Reason, Rung
from lanectl.core.lane import Completion, Fact, Ready, Service
from lanectl.errors import CandidateFailed, EngineError, Interrupted, Unreachable
from lanectl.probes.http import HttpProber
from tests.support.ladder_server import COMPLETIONS, HEALTH, MAX_MODEL_LEN, MODEL, LadderServer, Reply, models
from tests.support.one_container import ID, Lines, OneContainer
from tests.support.poll import until

WITHIN_S = 20.0  # longer than anything here takes
READY = Ready(
    health="/health",
    models=True,
    completion=Completion(1, WITHIN_S),
    fatal=("EngineCore failed", "^Traceback"),
    timeout_s=WITHIN_S,
)
SERVICE = Service("server", "dsv41", "sha256:1", ready=READY)
SIDECAR = Service("sidecar", "dsv41-rtx", "sha256:1", ready=Ready(log="^serving", timeout_s=WITHIN_S))


@dataclass
class Boot:
    """One boot that is being waited for."""

    engine: Any
    port: int
    service: Service = SERVICE
    port_was_free: bool = True
    api_key: str | None = None
    check: Callable[[], None] = lambda: None
    told: list[str] = field(default_factory=list)
    prober: Any = field(default_factory=HttpProber)

    @property
    def served(self) -> Served:
        return Served("127.0.0.1", self.port, MODEL, MAX_MODEL_LEN, self.api_key)

    def wait(self) -> ReadyReport:
        return wait_ready(
            engine=self.engine,
            prober=self.prober,
            clock=SystemClock(),
            container_id=ID,
            service=self.service,
            served=self.served,
            port_was_free=self.port_was_free,
            check=self.check,
            progress=self.told.append,
            deadline=None,
        )

    def begin(self) -> Errand[ReadyReport]:
        return Errand(self.wait, "waiting")

    def fails(self) -> CandidateFailed:
        with pytest.raises(CandidateFailed) as caught:
            self.wait()
        assert caught.value.step == f"ready:{self.service.name}"
        return caught.value


def failure_of(errand: Errand[ReadyReport]) -> CandidateFailed:
    assert errand.done(WITHIN_S)
    with pytest.raises(CandidateFailed) as caught:
        errand.result()
    return caught.value


def ready_of(errand: Errand[ReadyReport]) -> ReadyReport:
    assert errand.done(WITHIN_S)
    return errand.result()


@pytest.fixture
def engine() -> OneContainer:
    return OneContainer()


@pytest.fixture
def server() -> Iterator[LadderServer]:
    with LadderServer() as server:
        yield server


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_a_server_that_boots_is_ready_with_its_owner_known(engine: OneContainer, closed_port: int) -> None:
    boot = Boot(engine, closed_port)
    waiting = boot.begin()
    until(lambda: boot.told, WITHIN_S, "the wait has begun")
    with LadderServer(port=closed_port):
        report = ready_of(waiting)
    assert report.verdict.ready
    assert (report.owner, report.model) == ("ours", MODEL)
    assert report.looks > 1
    assert "nothing listens" in boot.told[0]


@pytest.mark.parametrize("code", [0, 1])
def test_T01_any_exit_while_booting_is_a_failure_in_the_log_s_words(
    engine: OneContainer, closed_port: int, code: int
) -> None:
    engine.exit(code, "loading", "Traceback (most recent call last):", '  File "x"', "OSError: no such model", "bye")
    failure = Boot(engine, closed_port).fails()
    assert failure.reason == Reason.EXITED
    assert f"exited with code {code}" in failure.message
    assert "OSError: no such model" in failure.message
    assert failure.tail[-1] == "bye"


def test_T01_an_exit_is_noticed_while_a_completion_hangs(engine: OneContainer, server: LadderServer) -> None:
    server.replies[COMPLETIONS] = Reply(hang=True)
    waiting = Boot(engine, server.port).begin()
    until(lambda: COMPLETIONS in server.paths(), WITHIN_S, "the completion is asked for")
    engine.exit(0, "EngineCore failed to start")
    failure = failure_of(waiting)
    assert failure.reason == Reason.EXITED
    assert "EngineCore failed to start" in failure.message


class DiesAfterAnswering(HttpProber):
    """The engine ends right after it answered the completion."""

    def __init__(self, engine: OneContainer) -> None:
        self._engine = engine

    def http(self, target: HttpTarget) -> HttpSample:
        sample = super().http(target)
        if sample.failed is None and target.completion is not None:
            self._engine.exit(1)
        return sample


def test_T01_a_server_that_answered_and_died_is_not_ready(engine: OneContainer, server: LadderServer) -> None:
    failure = Boot(engine, server.port, prober=DiesAfterAnswering(engine)).fails()
    assert failure.reason == Reason.EXITED


def test_T02_health_200_but_generation_hangs(engine: OneContainer, server: LadderServer) -> None:
    server.replies[COMPLETIONS] = Reply(hang=True)
    ready = replace(READY, completion=Completion(1, 0.3))
    failure = Boot(engine, server.port, replace(SERVICE, ready=ready)).fails()
    assert failure.reason == Reason.HUNG
    assert COMPLETIONS in failure.message


def test_T04_a_restart_back_off_ends_the_wait(engine: OneContainer, closed_port: int) -> None:
    engine.now(status=Status.RESTARTING, restart_count=3)
    assert Boot(engine, closed_port).fails().reason == Reason.RESTARTING


def test_T04_a_restart_that_no_look_saw_ends_the_wait(engine: OneContainer, closed_port: int) -> None:
    boot = Boot(engine, closed_port)
    waiting = boot.begin()
    until(lambda: boot.told, WITHIN_S, "the wait has begun")
    engine.now(restart_count=1, started_at="2026-01-01T00:00:07Z")
    assert failure_of(waiting).reason == Reason.RESTARTING


def test_T06_a_stranger_on_the_port_is_named_and_told_nothing(engine: OneContainer, server: LadderServer) -> None:
    engine.processes = frozenset({1})
    failure = Boot(engine, server.port, api_key="sk-secret").fails()
    assert failure.reason == Reason.FOREIGN_PORT
    assert str(os.getpid()) in failure.message
    assert server.asked
    assert all(path == HEALTH and "Authorization" not in headers for path, headers, _ in server.asked)


@pytest.mark.parametrize(("port_was_free", "owner"), [(True, "inferred"), (False, "unknown")])
def test_T06_an_owner_that_cannot_be_read_is_recorded_as_such(
    engine: OneContainer, server: LadderServer, port_was_free: bool, owner: str
) -> None:
    engine.processes = None
    assert Boot(engine, server.port, port_was_free=port_was_free).wait().owner == owner


def test_T06_the_wrong_model_behind_an_unreadable_owner_is_caught(engine: OneContainer, server: LadderServer) -> None:
    engine.processes = None
    server.replies["/v1/models"] = Reply(body=models("yesterday"))
    failure = Boot(engine, server.port).fails()
    assert failure.reason == Reason.WRONG_MODEL
    assert "yesterday" in failure.message


class ForksMeanwhile(OneContainer):
    """The listener's process is not yet in the list the first time it is read."""

    def pids(self, ref: str) -> frozenset[int] | None:
        first, self.processes = self.processes, frozenset({os.getpid()})
        return first


def test_T06_a_process_of_ours_that_was_just_forked_is_no_stranger(server: LadderServer) -> None:
    engine = ForksMeanwhile(processes=frozenset({1}))
    assert Boot(engine, server.port).wait().owner == "ours"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(301, headers={"Location": "https://elsewhere.example"}), Reason.MISCONFIGURED),
        (Reply(404), Reason.MISCONFIGURED),
        (Reply(401), Reason.AUTH),
    ],
)
def test_T07_a_wrong_answer_ends_the_wait(
    engine: OneContainer, server: LadderServer, reply: Reply, reason: Reason
) -> None:
    server.replies[HEALTH] = reply
    assert Boot(engine, server.port).fails().reason == reason


def test_T11_an_unhealthy_container_is_waited_for(engine: OneContainer, server: LadderServer) -> None:
    engine.now(health="unhealthy")
    server.replies[HEALTH] = Reply(503)
    boot = Boot(engine, server.port)
    waiting = boot.begin()
    until(lambda: any("HEALTHCHECK" in text for text in boot.told), WITHIN_S, "the hint is told")
    server.replies[HEALTH] = Reply()
    assert ready_of(waiting).verdict.ready


def test_T12_a_marker_makes_a_service_without_http_ready(engine: OneContainer, closed_port: int) -> None:
    engine.lines.write("layer 0: 89 cold experts prepared", "not serving yet")
    boot = Boot(engine, closed_port, SIDECAR)
    waiting = boot.begin()
    until(lambda: boot.told, WITHIN_S, "the wait has begun")
    assert not waiting.done(0.1)
    engine.lines.write("preparing  99%\rserving on 40 layers")
    report = ready_of(waiting)
    assert (report.verdict.ready, report.owner, report.model) == (True, "", None)


def test_a_fatal_line_ends_the_wait_with_what_came_after_it(engine: OneContainer, closed_port: int) -> None:
    boot = Boot(engine, closed_port)
    waiting = boot.begin()
    engine.lines.write("Traceback (most recent call last):", '  File "x"', "ValueError: bad map")
    failure = failure_of(waiting)
    assert failure.reason == Reason.FATAL_LOG
    assert "ValueError: bad map" in failure.message
    assert failure.tail[0].startswith("Traceback")


FACTS = (Fact("kv_tokens", r"KV cache size: ([\d,]+)", at_least=2400000), Fact("format", r"format: (\w+)"))


def test_boot_facts_are_read_from_the_log(engine: OneContainer, server: LadderServer) -> None:
    engine.lines.write("KV cache size: 2,540,000 tokens")
    report = Boot(engine, server.port, replace(SERVICE, facts=FACTS)).wait()
    assert report.facts == {"kv_tokens": 2540000.0, "format": None}


def test_a_demanded_fact_may_arrive_after_the_first_answer(engine: OneContainer, server: LadderServer) -> None:
    waiting = Boot(engine, server.port, replace(SERVICE, facts=FACTS)).begin()
    until(lambda: COMPLETIONS in server.paths(), WITHIN_S, "the completion is asked for")
    engine.lines.write("KV cache size: 2,540,000 tokens")
    assert ready_of(waiting).facts["kv_tokens"] == 2540000.0


@pytest.mark.parametrize("line", ["KV cache size: 1,048,576 tokens", "nothing of the kind"])
def test_a_fact_that_does_not_hold_fails_a_server_that_serves(
    engine: OneContainer, server: LadderServer, line: str
) -> None:
    engine.lines.write(line)
    failure = Boot(engine, server.port, replace(SERVICE, facts=FACTS)).fails()
    assert failure.reason == Reason.BOOT_FACT
    assert "kv_tokens" in failure.message


def test_a_time_out_says_how_far_it_came(engine: OneContainer, server: LadderServer) -> None:
    server.replies[HEALTH] = Reply(503, {"error": {"message": "loading shard 3"}})
    failure = Boot(engine, server.port, replace(SERVICE, ready=replace(READY, timeout_s=0.3))).fails()
    assert failure.reason == Reason.STARTING
    assert "loading shard 3" in failure.message


def test_an_interrupt_is_not_held_up_by_a_completion_that_hangs(engine: OneContainer, server: LadderServer) -> None:
    server.replies[COMPLETIONS] = Reply(hang=True)

    def check() -> None:
        if COMPLETIONS in server.paths():
            raise Interrupted("Ctrl-C")

    waiting = Boot(engine, server.port, check=check).begin()
    assert waiting.done(WITHIN_S)
    with pytest.raises(Interrupted):
        waiting.result()


def test_an_engine_that_is_silent_for_a_while_ends_nothing(engine: OneContainer, server: LadderServer) -> None:
    engine.error = Unreachable("the daemon restarts")
    boot = Boot(engine, server.port)
    waiting = boot.begin()
    until(lambda: any("the daemon restarts" in text for text in boot.told), WITHIN_S, "the silence is told")
    assert not waiting.done(0.1)
    engine.error = None
    assert ready_of(waiting).verdict.ready


def test_a_log_that_breaks_off_under_a_running_container_is_read_again(engine: OneContainer, closed_port: int) -> None:
    engine.lines.close()
    waiting = Boot(engine, closed_port, SIDECAR).begin()
    until(lambda: engine.streams == 1, WITHIN_S, "the log is read")
    engine.lines = Lines()
    engine.lines.write("serving")
    assert ready_of(waiting).verdict.ready
    assert engine.streams == 2


def test_a_log_that_cannot_be_read_hides_only_what_it_would_have_told(
    engine: OneContainer, server: LadderServer
) -> None:
    engine.log_error = EngineError("the logging driver does not support reading")
    assert Boot(engine, server.port).wait().verdict.ready
    sidecar = replace(SIDECAR, ready=replace(READY, log="^serving", timeout_s=0.3))
    failure = Boot(engine, server.port, sidecar).fails()
    assert failure.reason == Reason.STARTING
    assert "^serving" in failure.message
    assert "does not support reading" in failure.message


def test_a_paused_container_is_waited_for(engine: OneContainer, server: LadderServer) -> None:
    engine.now(status=Status.PAUSED)
    boot = Boot(engine, server.port)
    waiting = boot.begin()
    until(lambda: any("paused" in text for text in boot.told), WITHIN_S, "the pause is told")
    assert COMPLETIONS not in server.paths()
    engine.now(status=Status.RUNNING)
    assert ready_of(waiting).verdict.ready


def looked(engine: OneContainer, port: int, service: Service = SERVICE) -> tuple[Owner | None, Reason]:
    sample, verdict = look(
        engine=engine,  # type: ignore[arg-type]
        prober=HttpProber(),
        container_id=ID,
        service=service,
        served=Served("0.0.0.0", port, MODEL, MAX_MODEL_LEN, None),
    )
    return sample.owner, verdict.reason


def test_one_look_tells_what_the_wait_would(engine: OneContainer, server: LadderServer) -> None:
    assert looked(engine, server.port) == (Owner.OURS, Reason.READY)
    server.replies[HEALTH] = Reply(503)
    assert looked(engine, server.port)[1] is Reason.STARTING
    engine.processes = frozenset({1})
    assert looked(engine, server.port) == (Owner.FOREIGN, Reason.FOREIGN_PORT)
    engine.exit(1)
    assert looked(engine, server.port)[1] is Reason.EXITED


def test_one_look_asks_a_server_that_is_there_once(engine: OneContainer, server: LadderServer) -> None:
    assert looked(engine, server.port) == (Owner.OURS, Reason.READY)
    assert server.paths().count(HEALTH) == 1


def test_one_look_at_a_service_without_http_asks_only_the_engine(engine: OneContainer, closed_port: int) -> None:
    assert looked(engine, closed_port, SIDECAR) == (None, Reason.READY)
    engine.container = None
    assert looked(engine, closed_port, SIDECAR) == (None, Reason.EXITED)


def test_a_refused_port_is_one_cheap_question(engine: OneContainer, closed_port: int) -> None:
    sample = look(
        engine=engine,  # type: ignore[arg-type]
        prober=HttpProber(),
        container_id=ID,
        service=SERVICE,
        served=Served("127.0.0.1", closed_port, MODEL, None, None),
    )[0]
    assert sample.http is not None
    assert (sample.http.failed, sample.http.kind, sample.owner) == (Rung.PORT, Kind.REFUSED, None)
