"""One suite for both probers: the real one against a real server, the fake one against the same server in a world."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from lanectl.core.health import HttpTarget, Kind, Rung
from lanectl.core.lane import Completion
from lanectl.ports import Prober
from lanectl.probes.http import HttpProber
from tests.support.fake_prober import FakeProber
from tests.support.fake_world import FakeClock, Listener, Program, World
from tests.support.free_ports import free_ports
from tests.support.ladder_server import COMPLETIONS, HEALTH, MAX_MODEL_LEN, MODEL, MODELS, LadderServer, Reply, models

SOON_S = 0.2  # a deadline that is meant to pass
PID = 4711
WELL = Program(model=MODEL, max_model_len=MAX_MODEL_LEN)
TARGET = HttpTarget("", model=MODEL, max_model_len=MAX_MODEL_LEN, completion=Completion(1, SOON_S))


@dataclass(frozen=True)
class Case:
    """One server, as a program of the world and as replies of a real server, and what is expected of both probers."""

    program: dict[str, Any] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    target: dict[str, Any] = field(default_factory=dict)
    failed: Rung | None = None
    kind: Kind = Kind.NONE
    status: int | None = None
    frozen: bool = False


HANG = Reply(hang=True)
OTHER = Reply(body=models("other"))
CASES = {
    "well": Case(),
    "no health path asked": Case(target={"health": None}),
    "nothing but health asked": Case(target={"models": False, "completion": None, "model": None}),
    "model not given": Case(target={"model": None}),
    "another status is asked for": Case({"health_status": 204}, {HEALTH: Reply(204)}, {"health_status": 204}),
    "still loading": Case({"health_status": 503}, {HEALTH: Reply(503)}, {}, Rung.HEALTH, Kind.STATUS, 503),
    "no such path": Case({"health_status": 404}, {HEALTH: Reply(404)}, {}, Rung.HEALTH, Kind.STATUS, 404),
    "redirect": Case({"health_status": 301}, {HEALTH: Reply(301)}, {}, Rung.HEALTH, Kind.REDIRECT, 301),
    "401": Case({"health_status": 401}, {HEALTH: Reply(401)}, {}, Rung.AUTH, Kind.AUTH, 401),
    "403": Case({"health_status": 403}, {HEALTH: Reply(403)}, {}, Rung.AUTH, Kind.AUTH, 403),
    "another model": Case({"model": "other"}, {MODELS: OTHER}, {}, Rung.MODELS, Kind.WRONG_MODEL, 200),
    "another length": Case({}, {}, {"max_model_len": 7}, Rung.MODELS, Kind.WRONG_MODEL, 200),
    "no length": Case(
        {"max_model_len": None},
        {MODELS: Reply(body=models(MODEL, max_model_len=None))},
        {},
        Rung.MODELS,
        Kind.WRONG_MODEL,
        200,
    ),
    "hung": Case({"hangs": True}, {COMPLETIONS: HANG}, {}, Rung.COMPLETION, Kind.TIMEOUT),
    "frozen": Case({}, {HEALTH: HANG}, {}, Rung.HEALTH, Kind.TIMEOUT, frozen=True),
    "frozen, no health asked": Case({}, {MODELS: HANG}, {"health": None}, Rung.MODELS, Kind.TIMEOUT, frozen=True),
    "not HTTP": Case({"model": None}, {HEALTH: Reply(raw=b"SSH-2.0-x\r\n")}, {}, Rung.HEALTH, Kind.BAD_ANSWER),
}


@contextmanager
def _real(case: Case | None) -> Iterator[tuple[Prober, int, frozenset[int]]]:
    if case is None:
        yield HttpProber(), free_ports(1)[0], frozenset()
        return
    with LadderServer() as server:
        server.replies |= case.replies
        yield HttpProber(), server.port, frozenset({os.getpid()})


@contextmanager
def _fake(case: Case | None) -> Iterator[tuple[Prober, int, frozenset[int]]]:
    world = World(FakeClock())
    port = 30006
    if case is not None:
        program = replace(WELL, **case.program)
        world.strangers.append(Listener(port, frozenset({PID}), "server", program, case.frozen))
    yield FakeProber(world), port, frozenset({PID}) if case is not None else frozenset()


PROBERS = pytest.mark.parametrize("prober", [_real, _fake])


@PROBERS
@pytest.mark.parametrize("name", CASES)
def test_both_probers_see_the_same_of_the_same_server(name: str, prober: Any) -> None:
    case = CASES[name]
    with prober(case) as (port_of, port, _):
        asked = replace(TARGET, base_url=f"http://127.0.0.1:{port}", answer_within_s=SOON_S, **case.target)
        sample = port_of.http(asked)
    assert (sample.failed, sample.kind, sample.status) == (case.failed, case.kind, case.status), sample
    assert bool(sample.detail)
    if case.failed is None and asked.completion is not None:
        assert sample.model == MODEL
        assert sample.seconds is not None
    if case.failed is Rung.MODELS and case.kind is Kind.WRONG_MODEL:
        assert sample.models == (case.program.get("model") or MODEL,)


@PROBERS
def test_both_probers_say_that_nothing_listens(prober: Any) -> None:
    with prober(None) as (port_of, port, _):
        sample = port_of.http(replace(TARGET, base_url=f"http://127.0.0.1:{port}"))
        assert (sample.failed, sample.kind, sample.status) == (Rung.PORT, Kind.REFUSED, None)
        assert not port_of.port("127.0.0.1", port).listening
        assert port_of.can_bind("127.0.0.1", port)


@PROBERS
def test_both_probers_say_who_listens(prober: Any) -> None:
    with prober(Case()) as (port_of, port, pids):
        owner = port_of.port("127.0.0.1", port)
        assert (owner.listening, owner.pids) == (True, pids)
        assert len(owner.names) == 1
        assert not port_of.can_bind("127.0.0.1", port)
