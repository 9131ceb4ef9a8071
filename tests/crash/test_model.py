"""Random schedules of commands, deaths, faults and the world's own moves: production is back, or rightly DARK."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

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
LATE = 45  # the longest operation has some 50 records

errors = st.sampled_from([EngineError("said no"), EngineUnknown("no answer"), Unreachable("connection refused")])
faults = st.builds(
    Fault,
    call=st.sampled_from(CALLS),
    error=errors,
    after=st.booleans(),
    skip=st.integers(0, 3),
    times=st.sampled_from([1, 1, 2, 4, 10**6]),
)
events = st.integers(1, 60)
happenings = st.sampled_from(HAPPENINGS)
deaths = st.one_of(
    st.tuples(st.integers(1, LATE), st.sampled_from(HOWS)), st.tuples(st.integers(1, 15), st.just(EFFECT))
)
troubles = st.one_of(
    st.just(NONE),
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


class Schedule(RuleBasedStateMachine):
    """One schedule: it begins with a site in some state and ends settled."""

    ran: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(dir=QUICK_DISK))
        self._patch = pytest.MonkeyPatch()
        self.model = Model(self._folder, self._patch)

    @initialize(begin=st.sampled_from(["from dark", "from dark", "adopted", "promoted", "nothing"]))
    def begins(self, begin: str) -> None:
        type(self).ran += 1
        if begin in ("from dark", "promoted"):
            self.model.swap("prod", keep=True, from_dark=True)
        if begin == "promoted":
            self.model.swap("alike", keep=True)
        if begin == "adopted":
            self.model.adopt()

    @rule(
        lane=st.sampled_from(LANES),
        measure=st.booleans(),
        from_dark=st.sampled_from([False, False, False, True]),
        trouble=troubles,
    )
    def swap(self, lane: str, trouble: Trouble, **wish: bool) -> None:
        self.model.swap(lane, trouble, **wish)

    @rule(lane=st.sampled_from(LANES), from_dark=st.sampled_from([False, False, False, True]), trouble=troubles)
    def swap_and_keep(self, lane: str, from_dark: bool, trouble: Trouble) -> None:
        self.model.swap(lane, trouble, keep=True, from_dark=from_dark)

    @rule(trouble=troubles)
    def rollback(self, trouble: Trouble) -> None:
        self.model.rollback(trouble)

    @rule(verb=st.sampled_from(["stop", "start", "restart", "recover", "adopt"]), trouble=troubles)
    def command(self, verb: str, trouble: Trouble) -> None:
        getattr(self.model, verb)(trouble)

    @rule(trouble=troubles)
    def timer(self, trouble: Trouble) -> None:
        self.model.recover(trouble, if_needed=True)

    @rule(what=happenings, pick=st.integers(0, 5))
    def happens(self, what: str, pick: int) -> None:
        self.model.happens(what, pick)

    @rule(lane=st.sampled_from(LANES), program=st.sampled_from(sorted(PROGRAMS)))
    def becomes(self, lane: str, program: str) -> None:
        self.model.becomes(lane, program)

    @rule(seconds=st.sampled_from([1.0, 60.0, 3600.0]))
    def passes(self, seconds: float) -> None:
        self.model.passes(seconds)

    def teardown(self) -> None:
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
        ran: ClassVar[int] = 0

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
        if Shard.ran >= schedules:
            return


@pytest.mark.parametrize("number", range(SHARDS))
def test_production_is_back_whatever_happens(number: int) -> None:
    run_schedules(number, SCHEDULES)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(SHARDS, SHARDS + FULL_SHARDS))
def test_production_is_back_whatever_happens_in_many_more_schedules(number: int) -> None:
    run_schedules(number, FULL_SCHEDULES // FULL_SHARDS)
