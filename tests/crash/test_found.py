"""Schedules that once broke a promise, found by the model test, as plain cases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.errors import Dark, ExitCode
from tests.crash.model import Model, Trouble
from tests.support.mortal import EFFECT


@pytest.fixture
def model(folder: Path) -> Iterator[Model]:
    patch = pytest.MonkeyPatch()
    yield Model(folder, patch)
    patch.undo()


def test_production_that_somebody_paused_holds_its_own_port(model: Model) -> None:
    model.swap("prod", keep=True, from_dark=True)
    model.happens("paused")
    model.settle()


def test_a_name_that_another_container_has_refuses_a_swap_that_would_keep_it(model: Model) -> None:
    """Found after the commit, it would leave nothing to serve: neither lane could have the name."""
    model.swap("prod", keep=True, from_dark=True)
    model.adopt()
    refused = model.swap("prod", keep=True)
    assert refused is not None
    assert refused.exit_code is ExitCode.REFUSED
    assert " rename prod " in str(refused)
    model.settle()


def test_a_parked_lane_that_somebody_started_refuses_a_swap(model: Model) -> None:
    """It would take the port the moment production lets go of it."""
    model.swap("prod", keep=True, from_dark=True)
    model.swap("cand", keep=True)
    model.happens("started")
    refused = model.swap("heavy")
    assert refused is not None
    assert refused.exit_code is ExitCode.REFUSED
    assert " stop prod.parked" in str(refused)
    model.settle()


def test_what_was_production_before_an_adoption_does_not_wake_with_the_machine(model: Model) -> None:
    model.swap("alike", keep=True, from_dark=True)
    model.adopt()
    model.happens("reboot")
    model.settle()


def test_a_promoted_lane_that_is_made_again_was_not_production_before_itself(model: Model) -> None:
    model.swap("prod", Trouble(death=(4, EFFECT)), keep=True, from_dark=True)
    model.happens("removed")
    model.settle()


def test_a_rollback_from_DARK_that_is_interrupted_before_it_began_says_DARK(model: Model) -> None:
    model.swap("prod", keep=True, from_dark=True)
    model.swap("alike", keep=True)
    model.swap("cand", Trouble(away=(16, 10_000.0)))
    model.passes(10_000.0)
    assert isinstance(model.rollback(Trouble(asked=1)), Dark)
    model.settle()


def test_a_lane_that_was_stopped_on_purpose_stays_so_when_a_rollback_fails(model: Model) -> None:
    model.swap("prod", keep=True, from_dark=True)
    model.swap("cand", keep=True)
    model.stop()
    model.becomes("prod", "dies")
    model.rollback()
    assert not any(one.running for one in model.site.world.containers.values())
    model.settle()
