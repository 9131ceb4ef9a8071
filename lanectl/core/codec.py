"""Frozen dataclasses to plain JSON values and back, by their type hints. For the journal and production.json."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from lanectl.errors import LaneError

T = TypeVar("T")


class CodecError(LaneError):
    """A stored value does not have the shape its reader expects."""


def to_json(value: Any) -> Any:
    """Given a dataclass, enum, mapping, sequence or scalar, return JSON values. Tuples become lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [to_json(item) for item in value]
    return value


def from_json(kind: type[T], value: Any) -> T:
    """Given a dataclass type and JSON values, return the dataclass. Raise `CodecError` saying which key is wrong.

    Unknown keys are an error too: a file written by a newer lanectl is not half understood.
    """
    return cast(T, _read(kind, value, kind.__name__))


def _read(kind: Any, value: Any, path: str) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _read_union(kind, value, path)
    if origin is tuple:
        items = _expect(value, list, path)
        inner = get_args(kind)
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_read(inner[0], item, f"{path}[{index}]") for index, item in enumerate(items))
        if len(inner) != len(items):
            raise CodecError(f"{path}: {len(items)} items where {len(inner)} belong")
        return tuple(
            _read(one, item, f"{path}[{index}]") for index, (one, item) in enumerate(zip(inner, items, strict=True))
        )
    if origin is not None and issubclass(origin, Mapping):
        inner_kind = get_args(kind)[1]
        return {key: _read(inner_kind, item, f"{path}.{key}") for key, item in _expect(value, dict, path).items()}
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(cast(type, kind), value, path)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError:
            raise CodecError(f"{path}: {value!r} is not one of {[item.value for item in kind]}") from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _expect(value, kind, path)


def _read_union(kind: Any, value: Any, path: str) -> Any:
    options = get_args(kind)
    if value is None and type(None) in options:
        return None
    for option in options:
        if option is type(None):
            continue
        try:
            return _read(option, value, path)
        except CodecError as error:
            last = error
    raise last


def _read_dataclass(kind: type, value: Any, path: str) -> Any:
    data = _expect(value, dict, path)
    hints = _hints(kind)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise CodecError(f"{path}: unknown key {unknown[0]!r}")
    try:
        return kind(**{key: _read(hints[key], item, f"{path}.{key}") for key, item in data.items()})
    except TypeError as error:
        raise CodecError(f"{path}: {error}") from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=False, globalns=vars(typing) | vars(_module(kind)))


def _module(kind: type) -> types.ModuleType:
    import sys

    return sys.modules[kind.__module__]


def _expect(value: Any, kind: Any, path: str) -> Any:
    if kind in (int, float) and isinstance(value, bool):
        raise CodecError(f"{path}: {value!r} where {kind.__name__} belongs")
    if not isinstance(value, kind):
        raise CodecError(f"{path}: {type(value).__name__} where {kind.__name__} belongs")
    return value
