"""Seconds by phase and the dark time, from a journal's records."""

from __future__ import annotations

from lanectl.actions.timeline import timeline
from lanectl.core.journal import Kind, Record
from lanectl.core.swap import Phase


def record(mono: float, kind: Kind, step: str = "") -> Record:
    return Record(seq=1, at=f"t{mono}", mono=mono, swap="s", kind=kind, step=step)


STOPPED_AND_BACK = [
    record(10.0, Kind.OPENED),
    record(11.0, Kind.PHASE, Phase.PREFLIGHTED),
    record(11.5, Kind.ARMED),
    record(11.6, Kind.BEGIN, "stop:server"),
    record(12.0, Kind.DONE, "stop:server"),
    record(12.1, Kind.PHASE, Phase.QUIESCED),
    record(20.0, Kind.PHASE, Phase.READY),
    record(30.0, Kind.DONE, "prove"),
    record(30.5, Kind.CLOSED),
]


def test_each_phase_lasts_until_it_is_recorded() -> None:
    seen = timeline(STOPPED_AND_BACK)
    assert [(phase.phase, phase.seconds) for phase in seen.phases] == [
        ("PREFLIGHTED", 1.0),
        ("ARMED", 0.5),
        ("QUIESCED", 0.6),
        ("READY", 7.9),
        ("CLOSED", 10.5),
    ]
    assert seen.total_s == 20.5


def test_dark_from_the_order_to_stop_until_production_answered_again() -> None:
    assert timeline(STOPPED_AND_BACK).dark_s == 18.4


def test_a_kept_candidate_serves_from_ready_on() -> None:
    assert timeline([*STOPPED_AND_BACK[:-2], record(21.0, Kind.COMMITTED)]).dark_s == 8.4


def test_production_that_was_not_stopped_was_not_dark() -> None:
    assert timeline(STOPPED_AND_BACK[:3]).dark_s is None


def test_production_that_never_came_back_has_no_dark_time_yet() -> None:
    assert timeline(STOPPED_AND_BACK[:-2]).dark_s is None


def test_an_empty_journal_has_an_empty_timeline() -> None:
    assert timeline([]).phases == ()
