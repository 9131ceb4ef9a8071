"""The JSON Schema an editor gets agrees with what is checked: good files pass it, broken ones do not."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml

from lanectl.site.json_schema import lane_schema, station_schema
from tests.support.site_dir import LANE, REPOSITORY, STATION, uncommented_example

LANES = {path.stem: path.read_text() for path in (REPOSITORY / "lanes").glob("*.yaml")}
LANES["reference"] = (REPOSITORY / "lanectl/site/reference.yaml").read_text()


class TextLoader(yaml.SafeLoader):
    """Reads `on` and `no` as text, as editors with YAML 1.2 do."""


TextLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not (tag.endswith(":bool") and first not in "tTfF")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def errors(schema: dict[str, Any], text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors(yaml.load(text, Loader=TextLoader))]


@pytest.mark.parametrize("schema", [lane_schema(), station_schema()])
def test_the_schemas_are_schemas(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", sorted(LANES))
def test_every_shipped_lane_and_the_reference_pass(name: str) -> None:
    assert errors(lane_schema(), LANES[name]) == []


@pytest.mark.parametrize("text", [STATION, uncommented_example()])
def test_stations_pass(text: str) -> None:
    assert errors(station_schema(), text) == []


@pytest.mark.parametrize(
    "extra",
    [
        "modee: enforce",
        "max_model_len: many",
        "stable_for: 2",
        "gates: [map-cosin]",
        "drain: {idle_for: 1s}",
        "variants: {v: {summry: x}}",
        "variants: {v: {services: {server: {initt: true}}}}",
    ],
)
def test_a_broken_lane_does_not_pass(extra: str) -> None:
    assert errors(lane_schema(), LANE) == []
    assert len(errors(lane_schema(), LANE + extra + "\n")) == 1


def test_an_overlay_may_leave_anything_out() -> None:
    assert (
        errors(lane_schema(), LANE + "variants: {v: {services: {server: {command: [x]}}, drain: {deadline: 1s}}}\n")
        == []
    )


@pytest.mark.parametrize("extra", ["engin: {}", "gpus: {gb300: 0}", "production: V 25", "thresholds: {disk_free: 1G}"])
def test_a_broken_station_does_not_pass(extra: str) -> None:
    assert errors(station_schema(), STATION + extra + "\n") != []
