"""What the reference engine says about its own experts: check mode's lines, the counts file, the audit, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.poll import until
from tests.support.reference import ReferenceServer
from tests.support.reference_sidecar import PATIENT, ReferenceSidecar, write_map

WITHIN_S = 20.0
CHECK = {**PATIENT, "MEGA_PEER_CHECK": "100000", "MEGA_COLD_TRT": "1"}
LINE = re.compile(
    r"MEGA_PEER check layer=(\d+) T=(\d+) rows=(\d+) cold rel_diff=(\d+\.\d{4}) cos=(-?\d\.\d{5}) "
    r"\(cold share of output norm (\d+\.\d{3})\)"
)
PROMPT = "A good answer begins with the question."


@pytest.fixture
def rowmap(tmp_path: Path) -> Path:
    return write_map(tmp_path / "rowmap.json", "tiny", 5)


def checked(sidecar: ReferenceSidecar, environment: dict[str, str], tokens: int = 6) -> list[tuple[float, ...]]:
    """The checks that a boot with this environment prints for one request: layer, T, rows, rel_diff, cos, share."""
    with ReferenceServer(*sidecar.server_options, environment=environment) as server:
        server.tokens(PROMPT, max_tokens=tokens)
        assert server.terminate() == 0
    lines = [line for line in server.lines if "MEGA_PEER check" in line]
    matches = [LINE.fullmatch(line) for line in lines]
    assert all(matches), lines
    return [tuple(map(float, match.groups())) for match in matches if match]


def test_every_layer_of_every_step_is_checked_and_agrees(rowmap: Path) -> None:
    with ReferenceSidecar(rowmap) as sidecar:
        checks = checked(sidecar, CHECK)
    assert {layer for layer, *_ in checks} == {0, 1}
    assert max(tokens for _, tokens, *_ in checks) > 5
    assert all(0 < rows <= tokens for _, tokens, rows, *_ in checks)
    assert all(difference < 0.0005 and cosine > 0.9999 for *_, difference, cosine, _ in checks)
    assert all(0 < share < 2 for *_, share in checks)
    assert len(checks) > 8


@pytest.mark.parametrize(("share", "passes"), [("0.02", True), ("0.1", False)])
def test_a_wrong_sidecar_is_seen_by_its_cosine(rowmap: Path, share: str, passes: bool) -> None:
    with ReferenceSidecar(rowmap, faults=f"peer-wrong={share}") as sidecar:
        cosines = [cosine for *_, cosine, _ in checked(sidecar, CHECK)]
    assert (min(cosines) >= 0.999) == passes
    assert min(cosines) < 0.99995


def test_only_long_steps_until_the_budget_is_used_up(rowmap: Path) -> None:
    with ReferenceSidecar(rowmap) as sidecar:
        long = checked(sidecar, {**CHECK, "MEGA_PEER_CHECK_MIN_T": "2"})
        assert {layer for layer, *_ in long} == {0, 1}
        assert min(tokens for _, tokens, *_ in long) > 5
        assert len(checked(sidecar, {**CHECK, "MEGA_PEER_CHECK": "3"})) == 3


def test_without_a_reference_path_nothing_is_checked_and_that_is_said(rowmap: Path) -> None:
    with (
        ReferenceSidecar(rowmap) as sidecar,
        ReferenceServer(*sidecar.server_options, environment={**CHECK, "MEGA_COLD_TRT": "0"}) as server,
    ):
        server.tokens(PROMPT)
        assert server.terminate() == 0
    assert "MEGA_PEER_CHECK without MEGA_COLD_TRT=1: there is no reference path, nothing is checked" in server.lines
    assert "MEGA_PEER check" not in server.log


def test_the_counts_file_is_written_at_the_end(tmp_path: Path, rowmap: Path) -> None:
    counts = tmp_path / "counts.json"
    with ReferenceServer("--rowmap", str(rowmap), environment={"MEGA_COUNT": str(counts)}) as server:
        server.tokens([9] * 40, max_tokens=10)
        assert server.terminate() == 0
    content = json.loads(counts.read_text())
    assert [len(layer) for layer in content["layers"].values()] == [16, 16]
    assert {sum(layer) for layer in content["layers"].values()} == {2 * (40 + 9)}  # two a token; not the warm-up's


def test_a_lost_bit_is_reported_over_http_and_in_the_log(rowmap: Path) -> None:
    options = ("--rowmap", str(rowmap), "--placement", "october", "--hysteresis", "0.75")
    with ReferenceServer(*options, faults="corrupt-move=2") as server:
        server.tokens(PROMPT, max_tokens=100)
        answer = server.post("/audit", {})
        assert answer.status == 200
        assert answer.json["mismatches"] == len(answer.json["mismatched"]) == 1
        assert sorted(answer.json["mismatched"][0]) == ["expert", "layer"]
        until(lambda: "BYTE AUDIT: 32 checked, 1 mismatches" in server.lines, WITHIN_S, "the audit's line")
        assert server.get("/audit").status == 405


def test_what_a_server_does_not_hold_it_does_not_claim_to_have_checked(rowmap: Path) -> None:
    with ReferenceSidecar(rowmap) as sidecar, ReferenceServer(*sidecar.server_options, environment=PATIENT) as server:
        audit = server.post("/audit", {}).json
        assert (audit["checked"], audit["elsewhere"], audit["moved"]) == (2 * 11, 2 * 5, 0)


@pytest.mark.parametrize(
    ("placement", "places"),
    [
        ("resident", "16 hot in fast memory, 0.75 MiB"),
        ("v23", "11 hot in fast memory, 0.52 MiB; 5 cold in host memory, 0.23 MiB, read in place"),
        ("gracetier", "5 cold in host memory, 0.23 MiB, copied into a scratch of 5 slots, 0.12 MiB"),
    ],
)
def test_the_boot_log_says_where_the_experts_are(rowmap: Path, placement: str, places: str) -> None:
    with ReferenceServer("--rowmap", str(rowmap), "--placement", placement) as server:
        assert f"Expert placement {placement}: " in server.log
        assert places in server.log
        resident = 16 if placement == "resident" else 11
        assert f"2 layers, 16 experts a layer, {resident} resident a layer" in server.log


@pytest.mark.parametrize(
    ("options", "environment", "reason"),
    [
        (("--placement", "v23"), {}, "--placement v23 needs a map: --rowmap FILE"),
        (("--rowmap", "/nowhere.json"), {}, "expert map /nowhere.json: "),
        (("--placement", "sidecar", "--max-num-seqs", "9000"), {}, "9001 rows, the sidecar takes 8192"),
        (("--placement", "sidecar"), {"VLLM_EXP_PEER_SPINS": "many"}, "VLLM_EXP_PEER_SPINS"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_a_reason(
    rowmap: Path, options: tuple[str, ...], environment: dict[str, str], reason: str
) -> None:
    given = () if "--rowmap" in options or "needs a map" in reason else ("--rowmap", str(rowmap))
    with ReferenceServer(*options, *given, environment=environment, wait=False) as server:
        assert server.ended() == 1
    assert any(line.startswith("ValueError: ") and reason in line for line in server.lines), server.log
