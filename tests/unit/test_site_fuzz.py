"""No input of any kind ends in a traceback: a lane or a station is read, or refused with its problems."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanectl.core.lane import Lane
from lanectl.core.site import Site
from lanectl.engine.create import compose, create_args, docker_run
from lanectl.errors import LaneError, SpecError
from lanectl.site import shapes
from lanectl.site.lane_shape import LANE
from lanectl.site.load import check_all, load_lane, load_site
from lanectl.site.local_rules import local_problems
from lanectl.site.shapes import Shape
from lanectl.site.station_shape import STATION
from tests.support.site_dir import REPOSITORY, uncommented_example

LANES = [(REPOSITORY / "lanes" / name).read_text() for name in ("v25.yaml", "gracetier.yaml", "vllm-cpu.yaml")]
LANES.append((REPOSITORY / "lanectl/site/reference.yaml").read_text())
# What tends to break readers: YAML's own signs, its traps, long and strange text.
SNIPPETS = (
    *(
        ": ",
        "- ",
        "? ",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a",
        "<<: ",
        "!!x ",
        "| ",
        "> ",
        "'",
        '"',
        "#",
        "---\n",
        "...\n",
        "%",
        "@",
    ),
    *(
        "\t",
        "\n",
        "\r",
        "\0",
        "\x07",
        "\x85",
        "\u2028",
        "\ufeff",
        "\ud7ff",
        "💥",
        "٣",
        "~",
        "null",
        "true",
        "no",
        ".inf",
        "1e999",
    ),
    *(
        "${",
        "${}",
        "${x}",
        "${a.b}",
        "${args.x}",
        "*${args.dsv41_extra}",
        "$$",
        "$",
        "${secrets.hf}",
        "${env_file:/x:Y}",
    ),
    *("9" * 400, "-1", "0s", "1h" * 50, "(" * 300, "a{99999999999}", "(?P<", "[" * 80, "{a: " * 80, "x" * 5000),
)

T = TypeVar("T")
LONGER = 10 if os.environ.get("LANECTL_TEST_FULL") == "1" else 1  # how many times more examples `make test-full` tries


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    root = tmp_path_factory.mktemp("site")
    shutil.copytree(REPOSITORY / "lanes", root / "lanes")
    shutil.copytree(REPOSITORY / "maps", root / "maps")
    (root / "station.yaml").write_text(uncommented_example())
    return load_site(root)


def quick(examples: int) -> Callable[[Any], Any]:
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    return settings(max_examples=examples * LONGER, deadline=None, suppress_health_check=checks)


def answer(call: Callable[[], T]) -> tuple[T | None, LaneError | None]:
    """What the call returns, or the error a person would see. Anything else it raises fails the test."""
    try:
        return call(), None
    except LaneError as error:
        return None, error


def load_or_refuse(site: Site, text: str | bytes) -> Lane | None:
    """Load a lane as every command does; a refusal must say something, an answer must be usable."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    (Path(site.root) / "lanes/fuzzed.yaml").write_bytes(data)
    lane, refusal = answer(lambda: load_lane(site, "fuzzed", public=True))
    if lane is None:
        assert isinstance(refusal, SpecError)
        assert all(problem.where and problem.message for problem in refusal.problems)
        assert str(refusal).encode()
        return None
    local_problems(lane)
    for service in lane.services:
        docker_run(create_args(lane, service, name="x", labels={}))
    yaml.safe_dump(compose(lane))
    return lane


@st.composite
def mutated(draw: st.DrawFn, texts: list[str]) -> str:
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 40))
        kind = draw(st.sampled_from(["insert", "delete", "replace", "repeat", "swap"]))
        piece = draw(st.sampled_from(SNIPPETS) | st.text(max_size=5))
        cut = text[position : position + length]
        middle = {"insert": piece + cut, "delete": "", "replace": piece, "repeat": cut * 3, "swap": cut[::-1]}[kind]
        text = text[:position] + middle + text[position + length :]
    return text


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(SNIPPETS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=4),
    max_leaves=12,
)


def tree_for(shape: Shape) -> st.SearchStrategy[Any]:
    """Values that mostly fit a shape: the fuzz that gets past the first check."""
    words = st.sampled_from(
        ["a", "small", "server", "${host}", "${images.dsv41}", "/a", "/a:/b", "A=1", "1s", "1MiB", "(x)"]
    )
    match shape:
        case shapes.Record():
            wanted = {key.name: tree_for(key.shape) for key in shape.keys if key.required}
            others = {key.name: tree_for(key.shape) for key in shape.keys if not key.required}
            strict = st.fixed_dictionaries(wanted, optional=others)
            return strict | st.dictionaries(st.sampled_from([key.name for key in shape.keys]), JUNK, max_size=3)
        case shapes.MapOf():
            return st.dictionaries(
                st.sampled_from(["server", "sidecar", "a", "memlock", "A"]), tree_for(shape.item), max_size=3
            )
        case shapes.ListOf():
            return st.lists(tree_for(shape.item), max_size=3)
        case shapes.Either():
            return st.one_of(
                [tree_for(option) for option in (shape.one, shape.many, shape.keyed) if option is not None]
            )
        case shapes.OneOf():
            return st.sampled_from([*shape.words, "x"])
        case shapes.Flag():
            return st.booleans()
        case shapes.Whole() | shapes.Number():
            return st.integers(-2, 2**54)
        case shapes.Words():
            return st.lists(words, max_size=3) | words
        case shapes.Overlay():
            return JUNK
        case _:
            return words | JUNK


@quick(400)
@given(text=mutated(LANES))
def test_a_shipped_lane_with_damage_is_read_or_refused(site: Site, text: str) -> None:
    load_or_refuse(site, text.replace("lane: reference", "lane: fuzzed"))


@quick(300)
@given(data=st.binary(max_size=200))
def test_bytes_are_read_or_refused(site: Site, data: bytes) -> None:
    load_or_refuse(site, data)


@quick(300)
@given(value=JUNK)
def test_any_tree_is_read_or_refused(site: Site, value: Any) -> None:
    load_or_refuse(site, yaml.safe_dump(value, allow_unicode=True))


@quick(300)
@given(value=tree_for(LANE))
def test_any_tree_of_a_lanes_shape_is_read_or_refused(site: Site, value: Any) -> None:
    load_or_refuse(site, yaml.safe_dump(value, allow_unicode=True))


@quick(200)
@given(value=tree_for(STATION) | JUNK, text=mutated([uncommented_example()]), as_text=st.booleans())
def test_any_station_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: Any, text: str, as_text: bool
) -> None:
    root = tmp_path_factory.getbasetemp() / "stations"
    (root / "lanes").mkdir(parents=True, exist_ok=True)
    content = text if as_text else yaml.safe_dump(value, allow_unicode=True)
    (root / "station.yaml").write_bytes(content.encode("utf-8", "surrogatepass"))
    problems, refusal = answer(lambda: check_all(load_site(root)))
    assert problems == [] if refusal is None else str(refusal)  # it has no lanes


@quick(100)
@given(
    label=st.text(max_size=30)
    | st.sampled_from(["..", "../station", "v25@", "@", "v25@check@check", "/etc/passwd", "\0"])
)
def test_any_label_is_a_lane_or_refused(site: Site, label: str) -> None:
    lane, refusal = answer(lambda: load_lane(site, label, public=True))
    assert refusal.hint if refusal else lane and lane.label == label


def test_the_fuzzed_trees_reach_good_lanes_too(site: Site) -> None:
    """The oracle above is worth something only if lanes can come out good: this one does."""
    lane = load_or_refuse(site, LANES[0].replace("lane: v25", "lane: fuzzed"))
    assert lane is not None
    assert [service.name for service in lane.services] == ["sidecar", "server"]
