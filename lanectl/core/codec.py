"""Frozen dataclasses to plain JSON values and back, by their type hints. For the journal and production.json."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from lanectl.errors import LaneError

T = TypeVar("T")
Reader = Callable[[Any], Any]


class CodecError(LaneError):
    """A stored value does not have the shape its reader expects."""


def to_json(value: Any) -> Any:
    """Given a dataclass, enum, mapping, sequence or scalar, return JSON values. Tuples become lists."""
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, Enum)):
        return value
    names = _field_names(cast(Any, type(value)))
    if names is not None:
        return {name: to_json(getattr(value, name)) for name in names}
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
    try:
        return cast(T, _reader(cast(Any, kind))(value))
    except _Wrong as wrong:
        raise CodecError(f"{kind.__name__}{wrong.path}: {wrong.what}") from None


class _Wrong(Exception):
    """What is wrong with a value; its path grows from the inside out, so that reading a right one builds none."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path = ""

    def under(self, part: str) -> _Wrong:
        self.path = part + self.path
        return self


# Journals are read again and again: what a type hint asks for is worked out once for each.
@cache
def _reader(kind: Any) -> Reader:
    origin = get_origin(kind)
    if kind is Any:
        return lambda value: value
    if origin in (Union, types.UnionType):
        return _union_reader(kind)
    if origin is tuple:
        return _tuple_reader(get_args(kind))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_reader(get_args(kind)[1])
    if dataclasses.is_dataclass(kind):
        return _dataclass_reader(cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum_reader(kind)
    return _scalar_reader(kind)


def _union_reader(kind: Any) -> Reader:
    optional = type(None) in get_args(kind)
    readers = [_reader(option) for option in get_args(kind) if option is not type(None)]

    def read(value: Any) -> Any:
        if value is None and optional:
            return None
        for reader in readers:
            try:
                return reader(value)
            except _Wrong as wrong:
                last = wrong
        raise last

    return read


def _tuple_reader(inner: tuple[Any, ...]) -> Reader:
    one = _reader(inner[0]) if len(inner) == 2 and inner[1] is Ellipsis else None
    each = () if one is not None else tuple(_reader(kind) for kind in inner)

    def read(value: Any) -> Any:
        items = _expect(value, list)
        readers = (one,) * len(items) if one is not None else each
        if len(readers) != len(items):
            raise _Wrong(f"{len(items)} items where {len(readers)} belong")
        return tuple(
            _under(f"[{index}]", reader, item) for index, (reader, item) in enumerate(zip(readers, items, strict=True))
        )

    return read


def _mapping_reader(kind: Any) -> Reader:
    reader = _reader(kind)
    return lambda value: {key: _under(f".{key}", reader, item) for key, item in _expect(value, dict).items()}


def _dataclass_reader(kind: type) -> Reader:
    hints = get_type_hints(kind, include_extras=False, globalns=vars(typing) | vars(_module(kind)))
    readers = {key: _reader(hint) for key, hint in hints.items()}

    def read(value: Any) -> Any:
        data = _expect(value, dict)
        if not data.keys() <= readers.keys():
            raise _Wrong(f"unknown key {min(data.keys() - readers.keys())!r}")
        given = {}
        for key, item in data.items():
            try:
                given[key] = readers[key](item)
            except _Wrong as wrong:
                raise wrong.under(f".{key}") from None
        try:
            return kind(**given)
        except TypeError as error:
            raise _Wrong(str(error)) from None

    return read


def _enum_reader(kind: type[Enum]) -> Reader:
    def read(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError:
            raise _Wrong(f"{value!r} is not one of {[item.value for item in kind]}") from None

    return read


def _scalar_reader(kind: type) -> Reader:
    if kind is float:
        return lambda value: float(_expect(value, (int, float), "float"))
    return lambda value: _expect(value, kind)


def _under(part: str, reader: Reader, value: Any) -> Any:
    try:
        return reader(value)
    except _Wrong as wrong:
        raise wrong.under(part) from None


def _expect(value: Any, kind: Any, name: str | None = None) -> Any:
    if isinstance(value, bool) and kind is not bool:
        raise _Wrong(f"{value!r} where {name or kind.__name__} belongs")
    if not isinstance(value, kind):
        raise _Wrong(f"{type(value).__name__} where {name or kind.__name__} belongs")
    return value


@cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def _module(kind: type) -> types.ModuleType:
    import sys

    return sys.modules[kind.__module__]
