"""reference.yaml and station.example.yaml explain every key, rightly: they cannot drift from what is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lanectl.site import shapes
from lanectl.site.lane_shape import GATES, LANE, PROFILES
from lanectl.site.load import load_site
from lanectl.site.shapes import Key, Record, Shape
from lanectl.site.station_shape import STATION
from tests.support.site_dir import REPOSITORY, make_site, uncommented_example

REFERENCE = (REPOSITORY / "lanectl/site/reference.yaml").read_text()
EXAMPLE = (REPOSITORY / "station.example.yaml").read_text()


def keys_of(shape: Shape, path: str = "") -> Iterator[tuple[str, Key]]:
    """Every key a shape knows, by path; names of the operator's choice and list items are *."""
    match shape:
        case shapes.Record():
            for key in shape.keys:
                here = f"{path}.{key.name}".lstrip(".")
                yield here, key
                yield from keys_of(key.shape, here)
        case shapes.MapOf():
            yield from keys_of(shape.item, f"{path}.*")
        case shapes.ListOf():
            yield from keys_of(shape.item, f"{path}.*")
        case shapes.Either():
            for option in (shape.one, shape.many, shape.keyed):
                if option is not None:
                    yield from keys_of(option, path)


def written_in(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Every key of a YAML text with its line; list items are *."""

    def walk(node: yaml.Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                yield (*path, key.value), key.start_mark.line
                yield from walk(value, (*path, key.value))
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                yield from walk(item, (*path, "*"))

    yield from walk(yaml.compose(text), ())


def places(text: str, wanted: str) -> list[int]:
    """The lines where a key stands, by its path with * for anything."""
    parts = wanted.split(".")
    return [
        line
        for path, line in written_in(text)
        if len(path) == len(parts) and all(want in ("*", have) for want, have in zip(parts, path, strict=True))
    ]


LANE_KEYS = dict(keys_of(LANE))
STATION_KEYS = dict(keys_of(STATION))


@pytest.mark.parametrize("path", LANE_KEYS)
def test_the_reference_explains_every_key_of_a_lane(path: str) -> None:
    explained(REFERENCE, path, LANE_KEYS[path])


@pytest.mark.parametrize("path", STATION_KEYS)
def test_the_example_explains_every_key_of_a_station(path: str) -> None:
    explained(uncommented_example(), path, STATION_KEYS[path])


def explained(text: str, path: str, key: Key) -> None:
    lines = text.splitlines()
    found = places(text, path)
    assert found, f"{path} is not in the file"
    comments = [lines[line].partition("#")[2] for line in found]
    word = "required" if key.required else "optional"
    assert any(word in comment for comment in comments), f"{path} does not say {word}"
    if key.default:
        first = key.default.split(",")[0]
        assert any(first in comment for comment in comments), f"{path} does not say its default, {key.default}"


def test_the_reference_has_no_key_that_is_not_known() -> None:
    """Loading it would say so too; this names the key."""
    patterns = [re.compile(re.escape(path).replace(r"\*", r"[^.]+") + r"(\.\*)*") for path in LANE_KEYS]
    free = re.compile(r"(variants|services\.[^.]+\.(environment|ulimits|facts|logging\.options))\..*|services\.[^.]+")
    for path, line in written_in(REFERENCE):
        name = ".".join(path)
        assert free.fullmatch(name) or any(pattern.fullmatch(name) for pattern in patterns), f"line {line + 1}: {name}"


def test_the_reference_names_every_gate_and_profile() -> None:
    assert all(name in REFERENCE for name in (*GATES, *PROFILES))


def test_the_example_is_a_station_as_it_is_and_filled_in(tmp_path: Path) -> None:
    as_it_is = load_site(make_site(tmp_path / "a", EXAMPLE))
    assert as_it_is.images == {}
    lanes = {path.stem: path.read_text() for path in (REPOSITORY / "lanes").glob("*.yaml")}
    filled = load_site(make_site(tmp_path / "b", uncommented_example(), **lanes))
    assert filled.production == "pg61"
    assert set(filled.gpus) == {"gb300", "rtx"}


def test_the_reference_is_a_record_to_its_last_key() -> None:
    """The tables these tests walk are whole: every shape a key has is one they look into or a leaf."""
    leaves = (shapes.Str, shapes.Flag, shapes.Whole, shapes.Number, shapes.Duration, shapes.Size, shapes.Regex)
    others = (shapes.OneOf, shapes.Words, shapes.Overlay, shapes.Record, shapes.MapOf, shapes.ListOf, shapes.Either)
    assert all(isinstance(key.shape, leaves + others) for key in LANE_KEYS.values())
    assert isinstance(LANE, Record)
    assert len(LANE_KEYS) > 80
