"""Random schedules of commands, deaths, faults and the world's own moves: production is back, or rightly DARK."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from lanectl.errors import EngineError, EngineUnknown, Unreachable
from tests.crash.model import HAPPENINGS, LANES, NONE, PROGRAMS, Model, Trouble
from tests.support.fake_engine import Fault
from tests.support.mortal import EFFECT, HOWS
from tests.support.quick_disk import QUICK_DISK

# 2,000 schedules in `make test`, in shards so that two processes share them; 100,000 in test-full. Each shard has a
# seed of its own, so that a failure comes again; another SEED in the environment looks elsewhere.
SHARDS, SCHEDULES = 20, 100
FULL_SHARDS, FULL_SCHEDULES = 200, int(os.environ.get("LANECTL_MODEL_SCHEDULES", "100000"))
SEED = int(os.environ.get("LANECTL_MODEL_SEED", "0"))
STEPS = 6  # commands and moves in a schedule: what breaks needs few
# After its first ten examples Hypothesis mostly varies those; here every schedule is to be a new one.
A_RUN = 9

CALLS = ("create", "start", "stop", "rename", "set_restart", "remove", "keep_image", "kill", "containers", "image")
LATE = 32  # most operations have 20 to 50 records, and as many events

errors = st.sampled_from([EngineError("said no"), EngineUnknown("no answer"), Unreachable("connection refused")])
faults = st.builds(
    Fault,
    call=st.sampled_from(CALLS),
    error=errors,
    after=st.booleans(),
    skip=st.integers(0, 3),
    times=st.sampled_from([1, 1, 2, 4, 10**6]),
)
events = st.integers(1, LATE)
happenings = st.sampled_from(HAPPENINGS)
deaths = st.one_of(
    st.tuples(st.integers(1, LATE), st.sampled_from(HOWS)), st.tuples(st.integers(1, 9), st.just(EFFECT))
)
troubles = st.one_of(
    st.just(NONE),
    st.builds(Trouble, death=deaths),
    st.builds(Trouble, death=deaths),
    st.builds(Trouble, faults=st.lists(faults, min_size=1, max_size=2).map(tuple)),
    st.builds(Trouble, away=st.tuples(events, st.sampled_from([3.0, 60.0, 10_000.0]))),
    st.builds(Trouble, meanwhile=st.tuples(events, happenings, st.integers(0, 5))),
    st.builds(Trouble, asked=events),
    st.builds(
        Trouble,
        death=deaths,
        faults=st.lists(faults, max_size=1).map(tuple),
        meanwhile=st.tuples(events, happenings, st.integers(0, 5)),
    ),
)


@dataclass(frozen=True)
class Step:
    """A command or a move of the world: a method of the model, and its arguments."""

    what: str
    how: dict[str, Any]


def step(what: str, /, **how: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(what), st.fixed_dictionaries(dict(how)))


lanes = st.sampled_from(LANES)
rarely = st.sampled_from([False, False, False, True])
picks = st.integers(0, 5)
# One rule takes them all: with a rule for each, Hypothesis leaves some out of whole schedules, commands too.
steps = st.one_of(
    step("swap", lane=lanes, measure=st.booleans(), from_dark=rarely, trouble=troubles),
    step("swap", lane=lanes, keep=st.just(True), from_dark=rarely, trouble=troubles),
    step("swap", lane=lanes, keep=st.booleans(), measure=st.booleans(), trouble=troubles),
    step("rollback", trouble=troubles),
    step("recover", trouble=troubles),
    step("recover", if_needed=st.just(True), trouble=troubles),
    st.sampled_from(["stop", "start", "restart", "adopt"]).flatmap(lambda verb: step(verb, trouble=troubles)),
    step("happens", what=happenings, pick=picks),
    step("happens", what=happenings, pick=picks),
    step("becomes", lane=lanes, program=st.sampled_from(sorted(PROGRAMS))),
    step("passes", seconds=st.sampled_from([1.0, 60.0, 3600.0])),
)


class Schedule(RuleBasedStateMachine):
    """One schedule: it begins with a site in some state and ends settled. `ran`: those with more than one command."""

    ran: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(dir=QUICK_DISK))
        self._patch = pytest.MonkeyPatch()
        self.model = Model(self._folder, self._patch)

    @initialize(begin=st.sampled_from(["from dark", "from dark", "adopted", "promoted", "nothing"]))
    def begins(self, begin: str) -> None:
        if begin in ("from dark", "promoted"):
            self.model.swap("prod", keep=True, from_dark=True)
        if begin == "promoted":
            self.model.swap("alike", keep=True)
        if begin == "adopted":
            self.model.adopt()

    @rule(step=steps)
    def goes_on(self, step: Step) -> None:
        getattr(self.model, step.what)(**step.how)

    def teardown(self) -> None:
        if self.model.commands > 1:
            type(self).ran.add("\n".join(self.model.log))
        try:
            self.model.settle()
        except BaseException:
            print("\n".join(self.model.log))
            raise
        finally:
            self._patch.undo()
            shutil.rmtree(self._folder, ignore_errors=True)


def run_schedules(number: int, schedules: int) -> None:
    """Run a shard's schedules; the first that fails is shrunk and shown."""

    class Shard(Schedule):
        ran: ClassVar[set[str]] = set()

    how = settings(
        max_examples=A_RUN,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    for run in range(schedules):
        run_state_machine_as_test(seed(f"{SEED} {number} {run}")(Shard), settings=how)
        if len(Shard.ran) >= schedules:
            return


@pytest.mark.parametrize("number", range(SHARDS))
def test_production_is_back_whatever_happens(number: int) -> None:
    run_schedules(number, SCHEDULES)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(SHARDS, SHARDS + FULL_SHARDS))
def test_production_is_back_whatever_happens_in_many_more_schedules(number: int) -> None:
    run_schedules(number, FULL_SCHEDULES // FULL_SHARDS)
