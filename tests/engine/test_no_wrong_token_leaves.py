"""Freeze the sidecar at random moments under load: every answer is the unfrozen lane's, or it was cut."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.store.audit import verify
from tests.support.frozen import FREEZES, LATEST_S, PROMPTS, FrozenLane
from tests.support.station import new_local_site

# 5 ways x 8 = 40 freezes in `make test`; test-full takes 5 x 100. Each costs about two seconds: a boot, a load, a trip.
EACH = 100 if os.environ.get("LANECTL_TEST_FULL") else 8


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[FrozenLane]:
    made = FrozenLane(new_local_site(tmp_path / "site"))
    yield made
    made.close()


@pytest.mark.parametrize("way", FREEZES)
def test_a_frozen_sidecar_never_makes_a_wrong_answer(lane: FrozenLane, way: str) -> None:
    seed = int(os.environ.get("LANECTL_TEST_SEED", random.randrange(2**32)))
    dice = random.Random(seed)
    whole = cut = 0
    for number in range(EACH):
        if number:
            lane.again()
        answers = lane.frozen(FREEZES[way], after_s=dice.uniform(0, LATEST_S))
        for prompt, texts in answers.texts.items():
            assert texts == {lane.expected[prompt]}, f"wrong tokens after {way}, LANECTL_TEST_SEED={seed}"
        whole, cut = whole + answers.whole, cut + answers.cut
        tripped = lane.site.station().production().tripped
        assert tripped is not None, f"no trip is recorded after {way}, LANECTL_TEST_SEED={seed}"
    assert whole > EACH  # the lane was under load
    assert cut > EACH  # and its clients saw it die
    assert set(lane.expected) == set(PROMPTS)
    assert not verify(lane.site.station().state.audit)[1]


def test_nothing_starts_a_tripped_lane_but_a_person(lane: FrozenLane) -> None:
    lane.frozen(FREEZES["SIGSTOP"], after_s=0.1)
    assert lane.site.recover(lane.station()).nothing
    assert not lane.runs()
    done = lane.site.lanectl("start")
    assert done.code == 8
    assert "lanectl restart" in done.err
    assert lane.site.lanectl("recover", "--if-needed").code == 0
    assert not lane.runs()
    done = lane.site.lanectl("status")
    assert done.code == 8
    assert "TRIPPED" in done.out
    lane.again()
    assert lane.ask(PROMPTS[0]) == lane.expected[PROMPTS[0]]
    done = lane.site.lanectl("status")
    assert done.code == 0, done
    assert "watchdog    armed (serving)" in done.out
