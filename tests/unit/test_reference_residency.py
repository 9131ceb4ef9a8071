"""Adaptive residency of the reference engine: what is swapped, how often, and that no byte is lost on the way."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from lanectl.reference.boot import Booted
from lanectl.reference.residency import wanted_swaps
from lanectl.reference.tally import Tally
from lanectl.reference.weights import SHAPES
from tests.support.reference_model import ask, booted, run
from tests.support.reference_sidecar import write_map


def served(engine: Booted, requests: int, seed: int = 5) -> dict[int, list[int]]:
    """Serve so many unlike prompts, all there at once. Return their tokens."""
    dice = random.Random(seed)
    prompts = [[dice.randrange(5, 300) for _ in range(dice.randrange(4, 40))] for _ in range(requests)]
    return run(engine.scheduler, {0: [ask(number, prompt, 48) for number, prompt in enumerate(prompts)]})


def swaps(engine: Booted) -> int:
    assert engine.residency is not None
    return engine.residency.swaps


def placed(folder: Path, placement: str, hysteresis: float, shape: str = "tiny", faults: str = "") -> Booted:
    cold = SHAPES[shape].experts // 3
    rowmap = write_map(folder / "rowmap.json", shape, cold)
    options = ("--rowmap", str(rowmap), "--placement", placement, "--hysteresis", str(hysteresis))
    return booted("--shape", shape, "--max-num-seqs", "8", *options, faults=faults)


def test_the_busiest_cold_expert_takes_the_place_of_the_quietest_hot_one() -> None:
    hot = np.array([[True, True, False, False], [True, True, False, False], [True, True, False, False]])
    scores = np.array([[5.0, 4.0, 1.0, 13.0], [5.0, 4.0, 12.0, 11.0], [9.0, 0.0, 2.9, 3.1]])
    assert wanted_swaps(scores, hot, 3.0) == [(0, 1, 3), (2, 1, 3)]
    assert wanted_swaps(scores, hot, 2.9) == [(0, 1, 3), (1, 1, 2), (2, 1, 3)]
    assert wanted_swaps(scores, hot, 4.0) == []


@pytest.mark.parametrize("placement", ["october", "gracetier"])
def test_the_swap_rate_falls_when_the_hysteresis_doubles(tmp_path: Path, placement: str) -> None:
    counts = []
    for hysteresis in (0.75, 1.5, 3.0):
        engine = placed(tmp_path, placement, hysteresis)
        served(engine, 24)
        counts.append(swaps(engine))
    assert counts[0] > 2 * counts[1] > 0
    assert counts[1] > counts[2] > 0


@pytest.mark.parametrize("placement", ["october", "gracetier"])
def test_after_many_swaps_every_byte_is_where_it_belongs(tmp_path: Path, placement: str) -> None:
    engine = placed(tmp_path, placement, 0.5)
    served(engine, 24)
    assert swaps(engine) > 100
    audit = engine.audit.run()
    assert audit.mismatched == []
    assert audit.checked == 32  # all of them: 64 random ones a layer are more than there are
    assert audit.moved > 16


@pytest.mark.slow
def test_ten_thousand_swaps_and_not_a_byte_differs(tmp_path: Path) -> None:
    engine = placed(tmp_path, "gracetier", 0.5, shape="small")
    quiet = booted("--shape", "small", "--max-num-seqs", "8")
    burst = 0
    while swaps(engine) < 10_000:
        burst += 1
        assert served(engine, 32, seed=burst) == served(quiet, 32, seed=burst)
    audit = engine.audit.run()
    assert audit.mismatched == []
    assert audit.moved > 100


def test_a_bit_lost_in_a_swap_is_found_and_named(tmp_path: Path) -> None:
    engine = placed(tmp_path, "gracetier", 0.75, faults="corrupt-move=3")
    served(engine, 24)
    audit = engine.audit.run()
    assert len(audit.mismatched) == 1
    assert audit.line == "BYTE AUDIT: 32 checked, 1 mismatches"


def test_a_map_without_cold_experts_swaps_nothing(tmp_path: Path) -> None:
    rowmap = write_map(tmp_path / "rowmap.json", "tiny", 0)
    engine = booted("--rowmap", str(rowmap), "--placement", "gracetier", "--hysteresis", "0.5")
    assert served(engine, 4) == served(booted(), 4)
    assert swaps(engine) == 0


def test_the_counts_file_has_every_pick(tmp_path: Path) -> None:
    shape = SHAPES["tiny"]
    tally = Tally(shape)
    tally.add(1, np.array([[0, 3], [3, 15]]))
    tally.add(1, np.array([[3, 4]]))
    tally.write(tmp_path / "counts.json")
    content = json.loads((tmp_path / "counts.json").read_text())
    assert sorted(content) == ["layers", "time"]
    assert content["layers"]["0"] == [0] * 16
    assert content["layers"]["1"] == [1, 0, 0, 3, 1, *[0] * 10, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["counts.json"]
