"""No client reaches an unproven candidate: one that listens on the public port while on trial is stopped at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lanectl.errors import ExitCode
from tests.support.aftermath import is_back
from tests.support.fake_station import PUBLIC, WELL, FakeSite


def test_a_candidate_on_the_public_port_is_stopped_within_one_look(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.produce()
    before = site.seen("prod")
    site.lane("cand", replace(WELL, port=PUBLIC), ready={"timeout": "1m"})
    ended = site.swap("cand")
    assert ended.exit_code == ExitCode.CANDIDATE
    assert f"listens on the public port {PUBLIC} while the candidate is on trial" in ended.words
    assert "${port}" in ended.words
    journal = site.records()
    began = next(record.mono for record in journal if record.step == "ready:server")
    failed = next(record.mono for record in journal if record.kind == "failed")
    assert failed - began < 1  # of the world's time: the look comes every quarter of a second
    is_back(site, before)
