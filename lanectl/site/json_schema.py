"""The JSON Schema of lanes and of station.yaml, for editors: made from the same tables the checks are made from.

An editor sees the file before names are resolved, so a pattern is only given where no name can stand.
"""

from __future__ import annotations

from typing import Any

from lanectl.site import shapes
from lanectl.site.lane_shape import LANE, OVERLAY_KEYS
from lanectl.site.shapes import Record, Shape
from lanectl.site.station_shape import STATION

DRAFT = "https://json-schema.org/draft/2020-12/schema"
DURATION_PATTERN = r"^(\d+(\.\d+)?(d|h|ms|m|s))+$"
SIZE_PATTERN = r"^\d+(\.\d+)? ?(B|[kKMGT]i?B)?$"
_TEXT = ["string", "number", "boolean"]  # what an editor may take an unquoted text for


def lane_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a lane file."""
    overlay = _record(Record(tuple(key for key in LANE.keys if key.name not in OVERLAY_KEYS)), strict=False)
    return {"$schema": DRAFT, "title": "lanectl lane", "$defs": {"overlay": overlay}, **_record(LANE)}


def station_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of station.yaml."""
    return {"$schema": DRAFT, "title": "lanectl station", **_record(STATION, names=False)}


def _record(record: Record, *, strict: bool = True, names: bool = True) -> dict[str, Any]:
    """`strict`: required keys are required (an overlay may leave out any). `names`: ${…} can stand in text."""
    properties: dict[str, Any] = {}
    for key in record.keys:
        note = f"{key.note} (default: {key.default})" if key.default else key.note
        properties[key.name] = {"description": note, **_shape(key.shape, strict, names)}
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    required = [key.name for key in record.keys if key.required]
    return schema | ({"required": required} if required and strict else {})


def _shape(shape: Shape, strict: bool, names: bool) -> dict[str, Any]:
    match shape:
        case shapes.Record():
            return _record(shape, strict=strict, names=names)
        case shapes.MapOf():
            item = _shape(shape.item, strict, names)
            return {
                "type": "object",
                "additionalProperties": item,
                "propertyNames": {"pattern": f"^({shape.pattern})$"},
            }
        case shapes.ListOf():
            least = {"minItems": shape.least} if shape.least else {}
            item = _shape(shape.item, strict, names)
            return {"type": "array", "items": {"anyOf": [item, _splice()]} if shape.splice else item} | least
        case shapes.Words():
            return {"anyOf": [{"type": "array", "items": {"type": _TEXT}, "minItems": 1}, {"type": "string"}]}
        case shapes.Either():
            options = [option for option in (shape.one, shape.many, shape.keyed) if option is not None]
            return {"anyOf": [_shape(option, strict, names) for option in options]}
        case shapes.Overlay():
            return {"$ref": "#/$defs/overlay"}
        case _:
            return _scalar(shape, names)


def _scalar(shape: Shape, names: bool) -> dict[str, Any]:
    match shape:
        case shapes.Str():
            fixed = shape.pattern is not None and not (names and shape.names)
            return {"type": "string", "pattern": f"^({shape.pattern})$"} if fixed else {"type": _TEXT}
        case shapes.Flag():
            return {"type": "boolean"}
        case shapes.Whole():
            return {"type": "integer", "minimum": shape.least, "maximum": shape.most}
        case shapes.Duration():
            return {"type": "string", "pattern": DURATION_PATTERN}
        case shapes.Size():
            return {"type": ["string", "integer"], "pattern": SIZE_PATTERN}
        case shapes.Regex():
            return {"type": "string", "format": "regex"}
        case shapes.OneOf():
            return {"enum": list(shape.words)}
        case _:
            return {"type": "number"}


def _splice() -> dict[str, Any]:
    return {"type": "string", "pattern": r"^\*\$\{args\.[^{}]+\}$"}
