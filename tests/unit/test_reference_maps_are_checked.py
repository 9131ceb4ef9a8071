"""The reference engine takes an expert map as the published hook does: whole, disjoint, as many cold everywhere."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.reference.rowmap import RowMap, RowMapError, read_rowmap
from lanectl.reference.weights import SHAPES

TINY = SHAPES["tiny"]  # 2 layers of 16 experts
GOOD: dict[str, Any] = {
    "layers": {
        "0": {"cold": [3, 1, 15], "hot": [0, 2, *range(4, 15)]},
        "1": {"cold": [0, 9, 4], "hot": [1, 2, 3, 5, 6, 7, 8, *range(10, 16)]},
    },
    "meta": {"n_hot": 13},
}


def read(folder: Path, content: Any) -> RowMap:
    path = folder / "rowmap.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_rowmap(str(path), TINY)


def changed(layer: str, temperature: str, ids: Any) -> dict[str, Any]:
    content = copy.deepcopy(GOOD)
    content["layers"][layer][temperature] = ids
    return content


def test_the_lists_keep_their_order(tmp_path: Path) -> None:
    rowmap = read(tmp_path, GOOD)
    assert rowmap.cold == ((3, 1, 15), (0, 9, 4))
    assert rowmap.hot[1] == (1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15)
    assert (rowmap.hot_count, rowmap.cold_count) == (13, 3)


def test_the_layers_alone_are_a_map_too(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD["layers"]).cold == read(tmp_path, GOOD).cold


def test_both_hashes_are_those_of_the_published_forms(tmp_path: Path) -> None:
    rowmap = read(tmp_path, GOOD)
    assert rowmap.sha256 == hashlib.sha256((tmp_path / "rowmap.json").read_bytes()).hexdigest()
    digest = hashlib.sha256(b'{"0":[1,3,15],"1":[0,4,9]}').digest()
    assert rowmap.number == int.from_bytes(digest[:8], "little", signed=True)
    assert f"sha256 {rowmap.sha256}, rowmap hash {rowmap.number}" in rowmap.line


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "rowmap.json: "),
        ([1], "its layers must be 0 to 1"),
        ({"layers": {"0": GOOD["layers"]["0"]}}, "its layers must be 0 to 1"),
        ({"layers": {**GOOD["layers"], "2": GOOD["layers"]["0"]}}, "its layers must be 0 to 1"),
        ({"layers": {"0": GOOD["layers"]["0"], "1": [1]}}, "layer 1 needs a list of expert ids `hot`"),
        (changed("0", "cold", [3, 1, "15"]), "layer 0 needs a list of expert ids `cold`"),
        (changed("0", "cold", [3, 1, True]), "layer 0 needs a list of expert ids `cold`"),
        (changed("0", "cold", [3, 1, 2]), "layer 0: experts [2] are both hot and cold"),
        (changed("1", "cold", [0, 9]), "layer 1: hot and cold must be the experts 0 to 15, each once"),
        (changed("1", "cold", [0, 9, 4, 4]), "layer 1: hot and cold must be the experts 0 to 15, each once"),
        (changed("1", "cold", [0, 9, 4, 16]), "layer 1: hot and cold must be the experts 0 to 15, each once"),
        (
            {"layers": {"0": GOOD["layers"]["0"], "1": {"cold": [0], "hot": list(range(1, 16))}}},
            "layer 1 has 1 cold experts, layer 0 has 3",
        ),
    ],
)
def test_anything_else_is_refused_with_the_reason(tmp_path: Path, content: Any, reason: str) -> None:
    with pytest.raises(RowMapError) as refused:
        read(tmp_path, content)
    assert reason in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RowMapError, match=r"nowhere\.json.*No such file"):
        read_rowmap(str(tmp_path / "nowhere.json"), TINY)


@given(st.permutations(range(16)), st.permutations(range(16)), st.integers(0, 16))
def test_any_split_of_all_experts_is_a_map(tmp_path_factory: Any, one: list[int], two: list[int], cold: int) -> None:
    layers = {str(layer): {"cold": ids[:cold], "hot": ids[cold:]} for layer, ids in enumerate([one, two])}
    rowmap = read(tmp_path_factory.getbasetemp(), layers)
    assert rowmap.cold == (tuple(one[:cold]), tuple(two[:cold]))
    assert rowmap.hot_count == 16 - cold
