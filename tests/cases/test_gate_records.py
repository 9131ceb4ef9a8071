"""Gate records are found again for the very map and image they are about, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.core.gates import GateResult, GateVerdict
from lanectl.errors import LaneError
from lanectl.store.gates import GateRecord, find, record

MAP, IMAGE = "a" * 64, "sha256:" + "c" * 64
PASSED = GateRecord(
    GateResult("map-cosine", GateVerdict.PASS, 0.99906, 0.999, "1341 rows"), MAP, IMAGE, "v25", "swap-1", "t"
)


def test_a_record_is_found_again(tmp_path: Path) -> None:
    record(tmp_path / "gates", PASSED)
    assert find(tmp_path / "gates", "map-cosine", MAP, IMAGE) == PASSED


@pytest.mark.parametrize(
    ("gate", "map_sha256", "image"),
    [("byte-audit", MAP, IMAGE), ("map-cosine", "b" * 64, IMAGE), ("map-cosine", MAP, "sha256:" + "d" * 64)],
)
def test_another_gate_map_or_image_has_no_record(tmp_path: Path, gate: str, map_sha256: str, image: str) -> None:
    record(tmp_path, PASSED)
    assert find(tmp_path, gate, map_sha256, image) is None


def test_a_newer_verdict_takes_the_older_ones_place(tmp_path: Path) -> None:
    record(tmp_path, PASSED)
    failed = replace(PASSED, result=replace(PASSED.result, verdict=GateVerdict.FAIL), swap="swap-2")
    record(tmp_path, failed)
    assert find(tmp_path, "map-cosine", MAP, IMAGE) == failed


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"result": 1}'])
def test_a_record_that_cannot_be_understood_is_never_a_pass(tmp_path: Path, content: bytes) -> None:
    path = record(tmp_path, PASSED)
    path.write_bytes(content)
    with pytest.raises(LaneError):
        find(tmp_path, "map-cosine", MAP, IMAGE)


def test_a_record_of_another_map_under_this_ones_name_is_refused(tmp_path: Path) -> None:
    path = record(tmp_path, PASSED)
    near = MAP[:16] + "b" * 48
    path.rename(tmp_path / path.name)
    with pytest.raises(LaneError, match="another map or image"):
        find(tmp_path, "map-cosine", near, IMAGE)
