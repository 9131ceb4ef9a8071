"""What closed swaps tell afterwards, read back from their journals alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.actions.history import expected_outage, past_swaps, read_past
from lanectl.core.journal import Kind, Record
from tests.support.fake_station import WELL, FakeSite


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce()
    site.lane("cand")
    return site


def test_newest_first_with_how_each_ended_and_what_it_left_serving(site: FakeSite) -> None:
    site.swap("cand", measure=True)
    site.lane("dies", replace(WELL, exits_after_s=0.01, exit_code=0))
    site.swap("dies")
    site.swap("cand", keep=True)
    told = [(past.lane, past.outcome, past.serving) for past in past_swaps(site.station().state)]
    assert told == [
        ("cand", "promoted", "cand"),
        ("dies", "failed:ready:server", "prod"),
        ("cand", "measured", "prod"),
        ("prod", "promoted", "prod"),
    ]


def test_of_two_swaps_in_one_second_the_later_one_is_the_newest(site: FakeSite) -> None:
    station = site.station()
    ids = []
    for label in ("prod", "cand@small", "another"):
        ids.append(station.new_swap_id(label))
        station.clock.sleep(0.002)
    assert ids == sorted(ids)
    assert len({found.partition(".")[0] for found in ids}) == 1, "else this shows nothing"


def test_a_refused_swap_left_nothing_serving_and_cost_no_service(site: FakeSite) -> None:
    site.lane("cand", volumes=["/nowhere:/x:ro"])
    site.swap("cand")
    past = next(past_swaps(site.station().state))
    assert (past.outcome, past.serving, past.dark_s) == ("refused", None, None)


def test_a_damaged_journal_hides_no_other(site: FakeSite) -> None:
    site.swap("cand")
    state = site.station().state
    newest = next(past_swaps(state)).swap
    path = state.journal(newest)
    path.write_bytes(path.read_bytes().replace(b'"seq":2', b'"seq":3', 1))
    assert [past.lane for past in past_swaps(state)] == ["prod"]


def test_a_swap_that_went_over_a_reboot_has_no_dark_time(site: FakeSite) -> None:
    site.swap("cand")
    records = site.records()
    past = read_past(records)
    assert past is not None
    assert past.dark_s is not None
    for boot_id, known in ((records[0].data["boot_id"], True), ("another boot", False)):
        resumed = Record(99, "", 0.0, records[0].swap, Kind.RESUMED, data={"boot_id": boot_id})
        again = read_past((*records[:-1], resumed, records[-1]))
        assert again is not None
        assert (again.dark_s is not None) is known


def test_an_open_swap_is_no_history(site: FakeSite) -> None:
    site.swap("cand")
    assert read_past(site.records()[:-1]) is None


def test_only_swaps_of_the_same_kind_say_what_to_expect(site: FakeSite) -> None:
    def expected(measure: bool) -> int:
        outage = expected_outage(site.station().state, "cand", keep=False, measure=measure)
        return outage.swaps if outage else 0

    site.swap("cand")
    site.swap("cand", measure=True)
    site.swap("cand", measure=True)
    site.becomes("cand", replace(WELL, exits_after_s=0.01))
    site.swap("cand")
    assert (expected(measure=False), expected(measure=True)) == (1, 2)
