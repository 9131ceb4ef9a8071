"""`lanectl plan`: everything a swap would do, and nothing done."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanectl.actions.adopt import adopt
from lanectl.actions.plan import Plan, make_plan
from lanectl.actions.swap import SwapRequest
from lanectl.core.journal import Kind
from lanectl.errors import ExitCode
from tests.support.command_line import CommandLine, use_site
from tests.support.engine_cdi import NAMES
from tests.support.fake_station import FakeSite

SECRET = "hunter2"  # what must never be seen
MISSING_IMAGE = "sha256:" + "0" * 64


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce()
    site.lane("cand", devices=[NAMES["gb300"]], memory={"gpu": "gb300"})
    return site


def _plan(site: FakeSite, *, measure: bool = False) -> Plan:
    return make_plan(site.station("plan"), SwapRequest("cand", measure))


def test_the_steps_are_the_ones_the_swap_then_takes(site: FakeSite) -> None:
    planned = _plan(site, measure=True)
    assert site.swap("cand", measure=True).outcome == "measured"
    begun = [record.step for record in site.records() if record.kind is Kind.BEGIN]
    forward = [step.name for step in planned.forward]
    assert begun[: len(forward)] == forward
    taken = set(begun[len(forward) :])
    assert {step.name for step in planned.back if step.name.startswith("discard")} == {"discard:server"}
    assert {"released", "prove"} <= taken


def test_every_call_of_the_engine_is_shown_exactly(site: FakeSite) -> None:
    planned = _plan(site)
    container = site.seen("prod").id[:12]
    calls = [step.call for step in (*planned.forward, *planned.back) if step.call]
    assert calls == [
        "POST /containers/create?name=cand.candidate.SWAP",
        f"POST /containers/{container}/update, /rename?name=prod.parked.SWAP",
        f"POST /containers/{container}/stop?t=30",
        "POST /containers/cand.candidate.SWAP/start",
        f"POST /containers/{container}/start",
    ]
    run = planned.runs["server"]
    assert run.startswith("docker run --detach --pull never --name cand.candidate.SWAP ")
    assert f"--device {NAMES['gb300']}" in run


def test_all_reasons_to_refuse_are_listed_and_nothing_is_done(site: FakeSite) -> None:
    site.lane("cand", image=MISSING_IMAGE, volumes=["/nowhere/model:/model:ro"])
    planned = _plan(site)
    assert planned.exit_code is ExitCode.REFUSED
    words = "\n".join(map(str, planned.problems))
    assert MISSING_IMAGE in words
    assert "/nowhere/model" in words


def test_it_changes_nothing_takes_no_lock_and_writes_no_journal(site: FakeSite) -> None:
    site.swap("cand")
    before = {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file()}
    containers = site.containers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lanectl.store.lock.Lock.acquire", _never)
        _plan(site, measure=True)
    assert {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file()} == before
    assert site.containers() == containers


def _never(*_: object, **__: object) -> None:
    raise AssertionError("plan takes no lock")


def test_two_minutes_for_two_seconds_is_seen(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watchdog = {"counters": "/dev/shm/x", "stall": "2m", "mode": "enforce"}
    site.lane(
        "cand", more={"watchdog": watchdog, "stable_for": "1m30s", "drain": {"idle_for": "10s", "deadline": "5m"}}
    )
    use_site(site, monkeypatch)
    shown = CommandLine(capsys)("plan", "cand")
    rows = {what.strip(): how for what, _, how in (line.rpartition(" ") for line in shown.out.splitlines())}
    assert rows["watchdog: stall"] == "2m"
    assert rows["stable_for"] == "1m30s"
    assert rows["drain: deadline"] == "5m"
    assert rows["server: ready.timeout"] == "30s"
    assert rows["server: stop_grace_period"] == "30s"


def test_secrets_are_references(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEST_TOKEN", SECRET)
    site.say(secrets={"token": {"env": "TEST_TOKEN"}})
    site.lane("cand", environment={"HF_TOKEN": "${secrets.token}"})
    use_site(site, monkeypatch)
    for words in (["plan", "cand"], ["plan", "cand", "--json"], ["render", "cand"], ["lanes", "show", "cand"]):
        shown = CommandLine(capsys)(*words)
        assert "secrets.token" in shown.out
        assert SECRET not in shown.out + shown.err


def test_production_that_runs_otherwise_than_its_spec_says_is_shown(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.lane("prod", environment={"LEVEL": "1"})
    site.by_hand("prod", HostConfig={"NetworkMode": "host", "IpcMode": "host"}, Env=["LEVEL=2", f"TOKEN={SECRET}"])
    site.clock.sleep(1.0)
    adopt(site.station(), ["prod"], None)
    site.lane("cand")
    found = {one.key: (one.spec, one.running) for one in _plan(site).differences}
    assert found["environment.LEVEL"] == ("another value", "set")
    assert found["environment.TOKEN"] == ("not set (the image may set it)", "set")
    assert found["HostConfig.RestartPolicy"][1] == "{'Name': 'always', 'MaximumRetryCount': 0}"
    assert SECRET not in str(found)


def test_production_as_its_spec_says_has_no_difference(site: FakeSite) -> None:
    planned = _plan(site)
    assert (planned.owed, planned.differences, planned.no_difference) == ("prod", (), "")


def test_a_spec_that_is_gone_is_said_not_hidden(site: FakeSite) -> None:
    (site.root / "lanes" / "prod.yaml").unlink()
    planned = _plan(site)
    assert "there is no lane prod" in planned.no_difference
    assert not planned.problems


def test_the_expected_outage_comes_from_swaps_that_ended_the_same_way(site: FakeSite) -> None:
    assert _plan(site).outage is None
    dark = []
    for _ in range(3):
        report = site.swap("cand").report
        assert report is not None
        assert report.timeline.dark_s is not None
        dark.append(report.timeline.dark_s)
    outage = _plan(site).outage
    assert outage is not None
    assert (outage.swaps, outage.median_s, outage.last_s) == (3, round(sorted(dark)[1], 3), dark[-1])
    assert _plan(site, measure=True).outage is None, "a swap that measures is dark for longer"


def test_from_dark_stops_nothing(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.lane("prod")
    planned = make_plan(site.station("plan"), SwapRequest("prod", keep=True, from_dark=True))
    assert (planned.stops, planned.owed, planned.problems) == (None, None, ())
    assert not [step for step in planned.forward if step.name.startswith("stop:")]


def test_json_has_all_of_it(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_site(site, monkeypatch)
    shown = CommandLine(capsys)("plan", "cand", "--json")
    assert (shown.code, shown.err) == (0, "")
    said = shown.json
    assert (said["v"], said["lane"], said["stops"], said["exit_code"]) == (1, "cand", "prod", 0)
    assert said["forward"][0]["name"] == "create:server"
    assert said["problems"] == []
