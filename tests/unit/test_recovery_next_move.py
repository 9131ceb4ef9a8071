"""The table of recovery: from what the journal says and what is observed to one move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lanectl.core.container import Container, Status
from lanectl.core.journal import SwapState
from lanectl.core.owed import Desired, Production, Tripped, parked_name
from lanectl.core.recovery import Act, Observed, Owner, SeenService, may_take, next_move, owed_without_swap
from lanectl.core.swap import Phase
from tests.support.owed import an_owed, an_owed_service

SWAP = "20261129T010203Z-gracetier-abc123"


def a_state(**changes: object) -> SwapState:
    state = SwapState(
        swap=SWAP,
        lane="gracetier",
        kind="swap",
        command=("lanectl",),
        boot_id="b",
        deadline=100.0,
        phase=Phase.QUIESCED,
        opened_at="t",
        armed=True,
        owed=an_owed(),
    )
    return replace(state, **changes)  # type: ignore[arg-type]


def a_container(name: str = "prod-server", status: Status = Status.RUNNING) -> Container:
    return Container(f"id-of-{name}", name, "sha256:" + "a" * 64, "img", status)


def seen(container: Container | None) -> tuple[SeenService, ...]:
    return (SeenService(an_owed_service(), container),)


STRAY = a_container("cand.candidate", Status.CREATED)
PARKED = a_container(parked_name("prod-server", SWAP), Status.EXITED)

CASES = [
    ("closed", a_state(closed="measured"), Observed(), Act.NOTHING),
    ("a stray goes first", a_state(), Observed((STRAY,), seen(PARKED)), Act.DISCARD),
    ("a stray goes first even before arming", a_state(armed=False), Observed((STRAY,)), Act.DISCARD),
    ("never armed: nothing was touched", a_state(armed=False), Observed(), Act.REFUSE),
    ("nothing owed", a_state(owed=None), Observed(), Act.CLOSE),
    ("down, not proven released", a_state(), Observed((), seen(PARKED)), Act.RELEASE),
    ("down, released, parked name", a_state(), Observed((), seen(PARKED), released=True), Act.SETTLE),
    (
        "down, released, own name",
        a_state(),
        Observed((), seen(a_container(status=Status.EXITED)), released=True),
        Act.START,
    ),
    ("gone, released: made again by the start", a_state(), Observed((), seen(None), released=True), Act.START),
    ("paused holds its port", a_state(), Observed((), seen(a_container(status=Status.PAUSED)), True), Act.STOP),
    (
        "in restart back-off it comes by itself",
        a_state(),
        Observed((), seen(a_container(status=Status.RESTARTING)), True),
        Act.STOP,
    ),
    ("running, parked name", a_state(), Observed((), seen(replace(PARKED, status=Status.RUNNING))), Act.SETTLE),
    ("running, not proven", a_state(), Observed((), seen(a_container())), Act.PROVE),
    ("running and proven", a_state(), Observed((), seen(a_container()), proven=True), Act.CLOSE),
    (
        "running, and its stop may be under way",
        a_state(stopping=("server",)),
        Observed((), seen(a_container()), proven=True),
        Act.STOP,
    ),
    ("its stop has ended", a_state(stopping=("server",)), Observed((), seen(PARKED)), Act.RELEASE),
    ("proven counts for nothing once it is down", a_state(), Observed((), seen(PARKED), True, True), Act.SETTLE),
]


@pytest.mark.parametrize(("state", "observed", "act"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_next_move(state: SwapState, observed: Observed, act: Act) -> None:
    assert next_move(state, observed).act is act


@pytest.mark.parametrize(
    ("owner", "past", "guard", "act"),
    [
        (Owner.FREE, True, True, None),
        (Owner.OURS, True, False, None),
        (Owner.ALIVE, False, True, Act.LEAVE),
        (Owner.ALIVE, True, False, Act.LEAVE),
        (Owner.ALIVE, True, True, Act.TAKE_OVER),
    ],
)
def test_only_the_guard_stops_an_owner_and_only_past_the_deadline(
    owner: Owner, past: bool, guard: bool, act: Act | None
) -> None:
    move = may_take(owner, past_deadline=past, guard=guard)
    assert (move.act if move else None) is act


@pytest.mark.parametrize(
    ("production", "running", "act"),
    [
        (Production(current=an_owed()), False, Act.START),
        (Production(current=an_owed()), True, Act.NOTHING),
        (Production(current=an_owed(), desired=Desired.STOPPED), False, Act.NOTHING),
        (Production(current=an_owed(), tripped=Tripped("t", "stall")), False, Act.NOTHING),
        (Production(), False, Act.NOTHING),
    ],
)
def test_without_a_swap_only_an_owed_lane_that_is_down_is_started(
    production: Production, running: bool, act: Act
) -> None:
    assert owed_without_swap(production, running).act is act
