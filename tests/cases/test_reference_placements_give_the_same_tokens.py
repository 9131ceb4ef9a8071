"""Wherever the reference engine keeps its cold experts, and whichever map says so, the tokens are the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.reference import ReferenceServer
from tests.support.reference_model import ask, booted, run
from tests.support.reference_sidecar import PATIENT, ReferenceSidecar, words, write_map

COLD = {"tiny": 5, "small": 16}  # of 16 and of 48


def requests(count: int = 8) -> list[object]:
    """Unlike prompts, from one token to several steps' worth, greedy and sampled."""
    dice = random.Random(3)
    prompts = [[dice.randrange(5, 300) for _ in range(length)] for length in (1, 4, 17, 30, 60, 90, 150, 300)]
    return [
        ask(number, prompts[number % 8], 24, temperature=0.8 * (number % 3 == 2), seed=number)
        for number in range(count)
    ]


@pytest.mark.parametrize("shape", ["tiny", "small"])
@pytest.mark.parametrize("map_seed", [1, 2])
def test_eight_prompts_in_every_placement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, map_seed: int
) -> None:
    monkeypatch.setenv(*next(iter(PATIENT.items())))
    rowmap = write_map(tmp_path / "rowmap.json", shape, COLD[shape], map_seed)
    options = ("--shape", shape, "--rowmap", str(rowmap), "--hysteresis", "0.75")
    expected = run(booted("--shape", shape).scheduler, {0: requests()})
    swapped = 0
    for placement in ("resident", "v23", "october", "gracetier"):
        engine = booted(*options, "--placement", placement)
        assert run(engine.scheduler, {0: requests()}) == expected, placement
        assert engine.audit.run().mismatched == []
        swapped += engine.residency.swaps if engine.residency else 0
    assert swapped > 20
    with ReferenceSidecar(rowmap, "--shape", shape) as sidecar:
        engine = booted(*options, *sidecar.server_options)
        assert run(engine.scheduler, {0: requests()}) == expected
        published, completed, timeouts, rows, *_ = words(sidecar.path)
        assert (published, timeouts) == (completed, 0)
        assert rows > 500


def test_with_and_without_residency_over_http(tmp_path: Path) -> None:
    rowmap = write_map(tmp_path / "rowmap.json", "tiny", 5)
    texts = [f"Write about {what}." for what in ("stone", "winter", "a river", "bread", "SQL", "law", "tea", "snow")]
    with ReferenceServer() as plain:
        expected = [plain.tokens(text, max_tokens=32) for text in texts]
        assert plain.metric("reference:residency_swaps_total") == 0
    options = ("--rowmap", str(rowmap), "--placement", "gracetier", "--hysteresis", "0.75")
    with ReferenceServer(*options) as server:
        assert [server.tokens(text, max_tokens=32) for text in texts] == expected
        swaps = server.metric("reference:residency_swaps_total")
        audit = server.post("/audit", {}).json
        assert swaps > 20
        assert audit == {
            "checked": 32,
            "mismatches": 0,
            "mismatched": [],
            "moved": audit["moved"],
            "swaps": swaps,
            "elsewhere": 0,
        }
        assert audit["moved"] > 5
        assert server.terminate() == 0
        assert "BYTE AUDIT: 32 checked, 0 mismatches" in server.lines
