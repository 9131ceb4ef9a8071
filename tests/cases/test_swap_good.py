"""Swaps in which nothing goes wrong, in memory: what is recorded, what is left, and what the report says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.core.container import LABEL_LANE, LABEL_ROLE, LABEL_SITE, LABEL_SPEC, LABEL_SWAP, Container
from lanectl.core.journal import Kind
from lanectl.core.lane import Restart
from lanectl.core.swap import Phase
from lanectl.errors import ExitCode
from tests.support.aftermath import is_back, serves_alone
from tests.support.engine_cdi import NAMES
from tests.support.fake_station import PUBLIC, SPEAKS, TRIAL, FakeSite, Numbers
from tests.support.fake_world import Line, Program


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    return FakeSite(tmp_path)


def test_a_measured_swap_records_every_phase_and_puts_production_back(site: FakeSite) -> None:
    site.produce()
    production = site.seen("prod")
    site.lane("cand")
    ended = site.swap("cand", measure=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "measured")
    is_back(site, production)
    phases = [Phase(one.step) for one in site.records() if one.kind is Kind.PHASE]
    assert phases == [
        *(Phase.PREFLIGHTED, Phase.QUIESCED, Phase.BOOTED, Phase.READY, Phase.VERIFIED),
        *(Phase.MEASURED, Phase.RELEASED, Phase.RESTORED),
    ]
    assert [one.kind for one in site.records() if one.kind in (Kind.OPENED, Kind.ARMED, Kind.CLOSED)] == [
        *(Kind.OPENED, Kind.ARMED, Kind.CLOSED)
    ]
    report = ended.report
    assert report is not None
    assert report.restored == "prod"
    assert report.timeline.dark_s is not None
    assert 0 < report.timeline.dark_s <= report.timeline.total_s
    assert report.measured is not None
    assert json.loads(Path(report.measured["path"]).read_text())["profile"] == "general"


def test_a_candidate_is_measured_on_the_trial_port_which_no_client_knows(site: FakeSite) -> None:
    site.produce()
    site.lane("cand")
    assert site.swap("cand", measure=True).outcome == "measured"
    assert site.measured == [f"http://127.0.0.1:{TRIAL}"]


def test_a_swap_without_measurement_ends_proven(site: FakeSite) -> None:
    site.produce()
    production = site.seen("prod")
    site.lane("cand")
    ended = site.swap("cand")
    assert (ended.exit_code, ended.outcome, site.measured) == (ExitCode.OK, "proven", [])
    is_back(site, production)


def test_every_begin_is_durable_before_its_effect_and_has_an_outcome(site: FakeSite) -> None:
    site.produce()
    site.lane("cand")
    site.swap("cand", measure=True)
    pending: str | None = None
    for one in site.records():
        if one.kind is Kind.BEGIN:
            assert pending is None, one
            pending = one.step
        elif one.kind is Kind.DONE:
            assert pending == one.step
            pending = None
        else:
            assert pending is None, one
    assert pending is None


def test_services_start_in_order_and_stop_server_first(site: FakeSite) -> None:
    site.produce(sidecar=SPEAKS)
    site.lane("cand", sidecar=SPEAKS)
    assert site.swap("cand").outcome == "proven"
    serves_alone(site, "prod", "prod-sidecar")
    steps = [one.step for one in site.records() if one.kind is Kind.DONE]
    parked = ["park:server", "park:sidecar", "stop:server", "stop:sidecar"]
    booted = ["start:sidecar", "ready:sidecar", "start:server", "ready:server"]
    assert [step for step in steps if step in (*parked, *booted)] == [*parked, *booted]
    discarded = [step for step in steps if step.startswith("discard:")]
    assert [".candidate." in step and "sidecar" in step for step in discarded] == [False, True]


def test_a_sidecar_without_http_is_ready_by_its_log_and_the_server_waits_for_it(site: FakeSite) -> None:
    site.produce()
    site.lane("cand", sidecar=Program(lines=(Line(7.0, b"serving\n"),)))
    site.swap("cand")
    ready = site.record(Kind.DONE, "ready:sidecar")
    assert ready is not None
    assert ready.data["seconds"] >= 7.0


def test_promoted_lane_has_its_own_names_and_the_old_production_stays_parked(site: FakeSite) -> None:
    site.produce(restart="always")
    old = site.seen("prod")
    site.lane("cand", restart="unless-stopped")
    ended = site.swap("cand", keep=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "promoted")
    serves_alone(site, "cand")
    swap = site.records()[0].swap
    parked = site.seen(old.id)
    assert (parked.name, parked.restart, parked.running) == (f"prod.parked.{swap}", Restart(), False)
    assert site.seen("cand").restart == Restart("unless-stopped")
    production = site.station().production()
    assert production.previous is not None
    assert (production.previous.label, production.previous.services[0].container_id) == ("prod", old.id)
    assert site.measured == []
    assert ended.report is not None
    assert ended.report.restored == "cand"


def test_a_kept_candidate_boots_on_the_public_port(site: FakeSite) -> None:
    site.produce()
    site.lane("cand")
    site.swap("cand", keep=True, measure=True)
    assert site.measured == [f"http://127.0.0.1:{PUBLIC}"]


def test_the_next_swap_gives_a_promoted_lane_back_under_its_own_name(site: FakeSite) -> None:
    site.produce()
    site.lane("cand")
    site.swap("cand", keep=True)
    promoted = site.seen("cand")
    site.lane("next")
    assert site.swap("next").outcome == "proven"
    is_back(site, promoted)


def test_a_lane_may_be_promoted_again_while_its_old_container_is_parked(site: FakeSite) -> None:
    site.produce()
    first = site.seen("prod")
    site.lane("cand")
    assert site.swap("cand", keep=True).outcome == "promoted"
    assert site.swap("prod", keep=True).outcome == "promoted"
    serves_alone(site, "prod")
    assert site.seen("prod").id != first.id


def test_from_dark_with_nothing_owed_ends_dark_as_it_began_and_says_so(site: FakeSite) -> None:
    site.lane("cand")
    ended = site.swap("cand", from_dark=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "proven")
    assert ended.report is not None
    assert ended.report.restored is None
    assert not site.containers()
    assert site.ask() is None


def test_from_dark_brings_production_up_when_it_is_owed_and_down(site: FakeSite) -> None:
    site.produce()
    production = site.seen("prod")
    site.engine.stop(production.id, 1.0)
    site.lane("cand")
    ended = site.swap("cand", from_dark=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "proven")
    is_back(site, production)


def test_a_variant_is_swapped_like_its_lane(site: FakeSite) -> None:
    site.produce()
    site.lane("cand", more={"variants": {"wide": {"max_model_len": 2048}}})
    ended = site.swap("cand@wide")
    assert (ended.outcome, ended.report.lane if ended.report else "") == ("proven", "cand@wide")


def test_a_candidate_carries_labels_and_devices_and_no_restart_policy(site: FakeSite) -> None:
    site.produce()
    site.lane("cand", devices=[NAMES["gb300"]], restart="always")
    seen: list[Container] = []
    station = site.station()
    look = replace(station, measure=lambda **asked: seen.append(_candidate(site)) or Numbers(asked["profile"]))
    assert site.swap("cand", station=look, measure=True).outcome == "measured"
    (candidate,) = seen
    swap = site.records()[0].swap
    assert candidate.name == f"cand.candidate.{swap}"
    assert (candidate.restart, candidate.devices) == (Restart(), (NAMES["gb300"],))
    assert {key: candidate.labels[key] for key in (LABEL_SWAP, LABEL_LANE, LABEL_ROLE)} == {
        LABEL_SWAP: swap,
        LABEL_LANE: "cand",
        LABEL_ROLE: "server",
    }
    assert len(candidate.labels[LABEL_SPEC]) == 64
    assert candidate.labels[LABEL_SITE] == station.site.id


def _candidate(site: FakeSite) -> Container:
    return next(one for name, one in site.containers().items() if ".candidate." in name)


@pytest.mark.parametrize("wait_s", [0.0, 3.0])
def test_production_finishes_what_it_answers_before_it_is_stopped(site: FakeSite, wait_s: float) -> None:
    busy = {"left": 0}

    def in_flight(url: str, key: str | None) -> int:
        return 2 if site.clock.monotonic() < busy["left"] else 0

    site.in_flight = in_flight
    site.produce(more={"drain": {"idle_for": "1s", "deadline": "1m"}})
    busy["left"] = site.clock.monotonic() + wait_s
    site.lane("cand")
    assert site.swap("cand").outcome == "proven"
    drained = site.record(Kind.DONE, "drain")
    assert drained is not None
    assert drained.data["cut"] == 0
    assert wait_s + 1.0 <= drained.data["seconds"] < wait_s + 2.0


def test_a_drain_ends_at_its_deadline_and_says_how_many_requests_were_cut(site: FakeSite) -> None:
    site.in_flight = lambda url, key: 3
    site.produce(more={"drain": {"idle_for": "1s", "deadline": "5s"}})
    site.lane("cand")
    assert site.swap("cand").outcome == "proven"
    drained = site.record(Kind.DONE, "drain")
    assert drained is not None
    assert drained.data["cut"] == 3
    assert 5.0 <= drained.data["seconds"] < 6.0
