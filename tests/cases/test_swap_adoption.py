"""Production that an operator started by hand: recorded as it is, swapped away and back, nothing of it changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.actions.adopt import adopt
from lanectl.core.lane import Restart
from lanectl.core.owed import Desired
from lanectl.errors import ExitCode, LaneError
from tests.support.aftermath import is_back, serves_alone
from tests.support.fake_station import WELL, FakeSite


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    """A site that never saw lanectl: production runs, started with `docker run --restart always`."""
    site = FakeSite(tmp_path)
    site.lane("prod")
    site.lane("cand")
    site.by_hand("prod", HostConfig={"NetworkMode": "host"}, Env=["SECRET_OF_A_PERSON=hunter2"])
    site.clock.sleep(1.0)
    return site


def test_adoption_records_what_runs_and_changes_nothing(site: FakeSite) -> None:
    before = site.seen("prod")
    adopted = adopt(site.station("adopt", "prod"), ["prod"], None)
    assert site.seen("prod") == before
    assert (adopted.serving, adopted.owed.adopted, adopted.owed.label) == (True, True, "prod")
    production = site.station().production()
    assert production.current == adopted.owed
    assert production.desired is Desired.SERVING
    assert adopted.owed.services[0].container_id == before.id
    assert adopted.owed.services[0].restart == Restart("always")


def test_differences_from_the_spec_are_shown_and_values_of_variables_are_not(site: FakeSite) -> None:
    adopted = adopt(site.station(), ["prod"], None)
    keys = {one.key for one in adopted.differences}
    assert {"HostConfig.RestartPolicy", "environment.SECRET_OF_A_PERSON"} <= keys
    assert "hunter2" not in repr(adopted.differences)
    assert "hunter2" not in (site.root / "state" / "audit.jsonl").read_text()


def test_adopted_production_comes_back_as_the_very_same_container_with_its_restart_policy(site: FakeSite) -> None:
    before = site.seen("prod")
    adopt(site.station(), ["prod"], None)
    ended = site.swap("cand", measure=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "measured")
    is_back(site, before)
    assert not site.seen("prod").labels


def test_adopted_production_that_was_removed_is_made_again_as_it_was(site: FakeSite) -> None:
    before = site.seen("prod")
    body = site.container("prod").body
    adopt(site.station(), ["prod"], None)

    def measure(**asked: object) -> object:
        site.engine.remove(before.id)
        return site.measure(**asked)

    assert site.swap("cand", station=site.station(measure=measure), measure=True).outcome == "measured"
    serves_alone(site, "prod")
    again = site.container("prod")
    assert (again.body["Env"], again.body["Cmd"], again.restart) == (body["Env"], body["Cmd"], Restart("always"))
    kept = [path.read_text() for path in (site.root / "state").rglob("*") if path.is_file()]
    told = [text for text in kept if "hunter2" in text]
    assert len(told) == 1, "only the 0600 file of create arguments holds what the operator's container held"
    (recreate,) = (site.root / "state" / "recreate").glob(f"{before.id}*")
    assert recreate.stat().st_mode & 0o077 == 0


def test_another_container_name_is_kept_through_a_swap(site: FakeSite) -> None:
    site.engine.rename("prod", "vllm-of-ana")
    before = site.seen("vllm-of-ana")
    with pytest.raises(LaneError) as refused:
        adopt(site.station(), ["vllm-of-ana"], None)
    assert refused.value.exit_code is ExitCode.USAGE
    assert "--lane" in (refused.value.hint or "")
    adopt(site.station(), ["vllm-of-ana"], "prod")
    assert site.swap("cand").outcome == "proven"
    is_back(site, before)


def test_what_does_not_run_cannot_be_adopted(site: FakeSite) -> None:
    site.engine.stop("prod", 1.0)
    with pytest.raises(LaneError) as refused:
        adopt(site.station(), ["prod"], None)
    assert refused.value.exit_code is ExitCode.REFUSED
    assert "exited" in refused.value.message
    assert site.station().production().current is None


def test_what_runs_and_does_not_answer_is_adopted_with_a_warning_and_no_swap_starts_from_it(site: FakeSite) -> None:
    site.engine.remove("prod")
    site.becomes("prod", replace(WELL, hangs=True))
    site.by_hand("prod", HostConfig={"NetworkMode": "host"})
    site.clock.sleep(1.0)
    adopted = adopt(site.station(), ["prod"], None)
    assert not adopted.serving
    assert "HUNG" in adopted.detail
    ended = site.swap("cand")
    assert ended.exit_code is ExitCode.REFUSED
    assert "HUNG" in ended.words


def test_promoting_over_adopted_production_parks_it_for_a_rollback(site: FakeSite) -> None:
    before = site.seen("prod")
    adopt(site.station(), ["prod"], None)
    assert site.swap("cand", keep=True).outcome == "promoted"
    serves_alone(site, "cand")
    parked = site.seen(before.id)
    assert (parked.running, parked.restart) == (False, Restart())
    previous = site.station().production().previous
    assert previous is not None
    assert previous.services[0].restart == Restart("always")


def test_without_an_adoption_a_swap_says_what_to_run(site: FakeSite) -> None:
    before = site.seen("prod")
    ended = site.swap("cand")
    assert ended.exit_code is ExitCode.REFUSED
    assert "lanectl adopt" in ended.words
    assert site.seen("prod") == before
