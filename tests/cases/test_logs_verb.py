"""`lanectl logs` and `lanectl audit`: production's words, a past candidate's words, and who did what."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.actions.logs import Line, logs
from lanectl.errors import ExitCode, LaneError
from tests.support.command_line import CommandLine, use_site
from tests.support.fake_station import SPEAKS, WELL, FakeSite
from tests.support.fake_world import Line as Said
from tests.support.poll import until

SAYS = (Said(0.01, b"one\ntwo\n"), Said(0.05, b"three \x1b[2Jfour\n"))
SOON_S = 10.0


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce("prod", replace(WELL, lines=SAYS))
    site.lane("cand", replace(WELL, lines=(Said(0.01, b"candidate speaks\n"), Said(0.02, b"RuntimeError: no\n"))))
    return site


def _texts(site: FakeSite, what: str | None = None, last: int | None = None) -> list[str]:
    return [line.text for line in logs(site.station("logs"), what, follow=False, last=last)]


@pytest.mark.parametrize("what", [None, "prod"])
def test_production_is_what_is_shown_unless_told_otherwise(site: FakeSite, what: str | None) -> None:
    assert _texts(site, what) == ["one", "two", "three \x1b[2Jfour"]
    assert _texts(site, what, last=1) == ["three \x1b[2Jfour"]
    assert _texts(site, what, last=0) == []


def test_a_failed_candidates_words_are_there_by_swap_and_by_lane(site: FakeSite) -> None:
    report = site.swap("cand").report
    assert report is not None
    assert report.outcome == "failed:ready:server"
    for what in (report.swap, "cand"):
        assert _texts(site, what)[:2] == ["candidate speaks", "RuntimeError: no"]


def test_by_lane_the_newest_swap_that_kept_a_log_speaks(site: FakeSite) -> None:
    site.swap("cand")
    site.clock.sleep(2.0)  # ids tell the second
    site.becomes("cand", replace(WELL, lines=(Said(0.01, b"better now\n"),)))
    site.swap("cand")
    assert _texts(site, "cand")[0] == "better now"


def test_each_service_of_a_lane_is_named(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.produce("prod", replace(WELL, lines=SAYS), sidecar=SPEAKS)
    told = list(logs(site.station("logs"), None, follow=False, last=1))
    assert told == [Line("sidecar", "serving"), Line("server", "three \x1b[2Jfour")]


def test_following_goes_on_where_the_log_stood_and_ends_with_the_container(site: FakeSite) -> None:
    told: list[str] = []

    def follow() -> None:
        for line in logs(site.station("logs"), None, follow=True, last=1):
            told.append(line.text)

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    until(lambda: told, SOON_S, "what was said so far is told")
    with site.world.changed:
        container = site.container("prod")
        container.due.append((site.clock.monotonic(), lambda: site.world._write(container, Said(0, b"five\n"))))
    site.world.look()
    site.engine.kill("prod")
    reader.join(SOON_S)
    assert told == ["three \x1b[2Jfour", "five"]


def test_what_has_no_log_is_said_with_what_to_look_at(site: FakeSite) -> None:
    with pytest.raises(LaneError) as error:
        _texts(site, "nobody")
    assert error.value.exit_code is ExitCode.USAGE
    assert "lanectl status" in (error.value.hint or "")


def test_a_pipe_gets_the_lines_and_json_gets_json_lines(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_site(site, monkeypatch)
    lanectl = CommandLine(capsys)
    assert lanectl("logs", "-n", "2").out == "server | two\nserver | three \x1b[2Jfour\n"
    said = [json.loads(line) for line in lanectl("logs", "-n", "1", "--json").out.splitlines()]
    assert said == [{"v": 1, "service": "server", "text": "three \x1b[2Jfour"}]


def test_the_audit_tells_who_asked_for_what_and_how_it_ended(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = site.swap("cand").report
    assert report is not None
    use_site(site, monkeypatch)
    lanectl = CommandLine(capsys)
    intent, outcome = lanectl("audit", "log", "-n", "2").out.splitlines()
    assert all(word in intent for word in ("swap intent", "lane=cand", report.swap, "@"))
    assert all(word in outcome for word in ("swap outcome", "outcome=failed:ready:server", "RuntimeError: no"))
    entries = lanectl("audit", "log", "--json").json["entries"]
    assert [entry["event"] for entry in entries[-2:]] == ["intent", "outcome"]
    assert lanectl("audit", "log", "-n", "0").out == ""


def test_an_audit_that_was_changed_is_exit_1_and_names_the_line(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_site(site, monkeypatch)
    lanectl = CommandLine(capsys)
    assert lanectl("audit", "verify").code == ExitCode.OK
    path = site.station().state.audit
    path.write_bytes(path.read_bytes().replace(b'"lane":"prod"', b'"lane":"evil"', 1))
    shown = lanectl("audit", "verify")
    assert (shown.code, f"{path}:2" in shown.out) == (ExitCode.FAILED, True)
    as_json = lanectl("audit", "verify", "--json")
    assert (as_json.code, as_json.json["exit_code"], len(as_json.json["problems"])) == (1, 1, 1)


def test_a_site_without_an_audit_has_nothing_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_site(FakeSite(tmp_path), monkeypatch)
    lanectl = CommandLine(capsys)
    assert (lanectl("audit", "log").out, lanectl("audit", "verify").code) == ("", ExitCode.OK)
