"""Gates in a swap: a pass lets it go on, anything else ends it with production back; a gate's own boot is recorded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanectl.actions.gate import gate
from lanectl.actions.interrupts import Interrupts
from lanectl.actions.station import Station
from lanectl.core.gates import GateVerdict
from lanectl.errors import ExitCode, LaneError
from lanectl.store.files import ensure_dir
from lanectl.store.gates import find
from tests.support.aftermath import is_back
from tests.support.fake_station import WELL, FakeSite
from tests.support.fake_world import Line, Program
from tests.support.station import Told

MAP = json.dumps({"layers": {}}).encode()
SUM, OTHER = hashlib.sha256(MAP).hexdigest(), "b" * 64


def checked(cos: float, count: int = 50) -> Program:
    """A server in check mode whose log has this many rows of this cosine."""
    row = f"MEGA_PEER check layer=1 T=900 rows=40 cold rel_diff=0.01 cos={cos} (cold share of output norm 0.2)\n"
    return replace(WELL, lines=(Line(0.05, row.encode() * count),))


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce()
    ensure_dir(site.root / "maps")
    (site.root / "maps" / "m.json").write_bytes(MAP)
    (site.root / "maps" / "MANIFEST.yaml").write_text(f"maps: {{m.json: {{sha256: {SUM}}}}}\n")
    return site


def lane(site: FakeSite, program: Program = WELL, **more: Any) -> None:
    ref = {"file": "maps/m.json", "mount": "/m.json", "services": ["server"]}
    check = {"services": {"server": {"environment": {"MEGA_PEER_CHECK": "100000"}}}}
    site.lane("cand", program, more={"map": ref, "variants": {"check": check}, **more})


def talkative(site: FakeSite, answered: int = 10, audit: dict[str, Any] | None = None) -> Station:
    station = site.station("swap", "cand")
    return replace(station, converse=lambda *_: answered, post_json=lambda *_: audit)


@pytest.mark.parametrize(
    ("audit", "exit_code", "outcome"),
    [
        ({"checked": 300, "mismatches": 0}, ExitCode.OK, "proven"),
        ({"checked": 300, "mismatches": 2}, ExitCode.FAILED, "failed:gate:byte-audit"),
        ({"checked": 0, "mismatches": 0}, ExitCode.FAILED, "failed:gate:byte-audit"),
        (None, ExitCode.FAILED, "failed:gate:byte-audit"),
        ({"checked": "many"}, ExitCode.FAILED, "failed:gate:byte-audit"),
    ],
)
def test_T49_only_a_passed_byte_audit_lets_a_swap_go_on(
    site: FakeSite, audit: dict[str, Any] | None, exit_code: ExitCode, outcome: str
) -> None:
    before = site.seen("prod")
    lane(site, gates=["byte-audit"])
    ended = site.swap("cand", station=talkative(site, audit=audit))
    assert (ended.exit_code, ended.outcome) == (exit_code, outcome)
    assert ended.report is not None
    assert ended.report.gates["byte-audit"]["verdict"] == ("pass" if exit_code == ExitCode.OK else _verdict(audit))
    is_back(site, before)


def _verdict(audit: dict[str, Any] | None) -> str:
    return "fail" if audit and audit.get("mismatches") else "inconclusive"


@pytest.mark.parametrize(("said", "outcome"), [(SUM, "proven"), (OTHER, "failed:gate:map-handshake")])
def test_an_engine_that_read_another_map_is_refused(site: FakeSite, said: str, outcome: str) -> None:
    before = site.seen("prod")
    lane(site, replace(WELL, lines=(Line(0.05, f"rowmap /m.json sha256 {said}\n".encode()),)), gates=["map-handshake"])
    ended = site.swap("cand", station=talkative(site))
    assert ended.outcome == outcome
    assert ended.report is not None
    assert said[:12] in ended.report.gates["map-handshake"]["detail"]
    is_back(site, before)


def run_cosine(site: FakeSite, program: Program, answered: int = 10) -> Any:
    lane(site, program, requires=["map-cosine"])
    return gate(talkative(site, answered), "cand", "map-cosine", Told(), Interrupts())


def test_a_map_that_passes_its_own_boot_is_recorded_and_may_then_be_swapped_in(site: FakeSite) -> None:
    before = site.seen("prod")
    lane(site, checked(0.9999), requires=["map-cosine"])
    assert site.swap("cand").exit_code == ExitCode.REFUSED
    report = run_cosine(site, checked(0.9999))
    assert report.exit_code == ExitCode.OK
    assert report.result is not None
    assert report.result.passed
    is_back(site, before)
    assert site.swap("cand").outcome == "proven"
    is_back(site, before)


@pytest.mark.parametrize(
    ("program", "answered", "verdict"),
    [
        (checked(0.99885), 10, GateVerdict.FAIL),
        (checked(0.9999, count=3), 10, GateVerdict.INCONCLUSIVE),
        (WELL, 10, GateVerdict.INCONCLUSIVE),
        (checked(0.9999), 0, GateVerdict.INCONCLUSIVE),
    ],
)
def test_a_map_that_does_not_pass_is_recorded_as_such_and_stays_out(
    site: FakeSite, program: Program, answered: int, verdict: GateVerdict
) -> None:
    before = site.seen("prod")
    report = run_cosine(site, program, answered)
    assert report.exit_code == ExitCode.FAILED
    image = site.station().engine.image(site.images["cand"])
    assert image is not None
    kept = find(site.station().state.gates, "map-cosine", SUM, image.id)
    assert kept is not None
    assert kept.result.verdict is verdict
    ended = site.swap("cand")
    assert ended.exit_code == ExitCode.REFUSED
    assert f"gate map-cosine says {verdict}" in ended.words
    is_back(site, before)


def test_a_verdict_holds_for_its_map_and_image_only(site: FakeSite) -> None:
    run_cosine(site, checked(0.9999))
    (site.root / "maps" / "m.json").write_bytes(MAP + b" ")
    changed = hashlib.sha256(MAP + b" ").hexdigest()
    (site.root / "maps" / "MANIFEST.yaml").write_text(f"maps: {{m.json: {{sha256: {changed}}}}}\n")
    assert "gate map-cosine was not run" in site.swap("cand").words


def test_a_gate_without_a_boot_of_its_own_says_where_it_runs(site: FakeSite) -> None:
    lane(site)
    with pytest.raises(LaneError, match="byte-audit has no boot of its own"):
        gate(site.station(), "cand", "byte-audit", Told(), Interrupts())
