"""Which phase may follow which."""

from __future__ import annotations

import pytest

from lanectl.core.swap import IllegalTransition, Outcome, Phase, advance, followers, outcome_text

GOOD = [
    Phase.OPENED,
    Phase.PREFLIGHTED,
    Phase.ARMED,
    Phase.QUIESCED,
    Phase.BOOTED,
    Phase.READY,
    Phase.VERIFIED,
    Phase.MEASURED,
]


@pytest.mark.parametrize(
    "path",
    [
        [*GOOD, Phase.RELEASED, Phase.RESTORED, Phase.CLOSED],
        [*GOOD[:-1], Phase.RELEASED, Phase.RESTORED, Phase.CLOSED],
        [*GOOD, Phase.COMMITTED, Phase.RESTORED, Phase.CLOSED],
        [*GOOD[:-1], Phase.COMMITTED, Phase.RESTORED, Phase.CLOSED],
        [Phase.OPENED, Phase.CLOSED],
        [Phase.OPENED, Phase.PREFLIGHTED, Phase.CLOSED],
        [*GOOD, Phase.RELEASED, Phase.CLOSED],
    ],
)
def test_the_published_paths_are_possible(path: list[Phase]) -> None:
    phase = path[0]
    for following in path[1:]:
        phase = advance(phase, following)
    assert phase is Phase.CLOSED


@pytest.mark.parametrize("phase", GOOD[2:])
def test_from_armed_on_the_way_back_is_open_from_everywhere(phase: Phase) -> None:
    assert Phase.RELEASED in followers(phase)


@pytest.mark.parametrize("phase", GOOD[2:])
def test_from_armed_on_nothing_closes_without_the_way_back(phase: Phase) -> None:
    assert Phase.CLOSED not in followers(phase)


def test_nothing_follows_closed() -> None:
    assert followers(Phase.CLOSED) == frozenset()


def test_a_phase_cannot_be_skipped() -> None:
    with pytest.raises(IllegalTransition, match="READY cannot follow ARMED"):
        advance(Phase.ARMED, Phase.READY)


def test_recording_a_phase_again_is_fine() -> None:
    assert advance(Phase.RELEASED, Phase.RELEASED) is Phase.RELEASED


def test_an_outcome_names_the_step_where_there_is_one() -> None:
    assert outcome_text(Outcome.FAILED, "ready:server") == "failed:ready:server"
    assert outcome_text(Outcome.PROMOTED, "ready:server") == "promoted"
