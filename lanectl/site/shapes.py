"""What a key of a spec may hold. One table of shapes per file is the source of the checks, the JSON Schema and the
test that the reference file is complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Str:
    """Text, quoted or not. `names`: ${…} is resolved. `secrets`: ${secrets.NAME} is allowed. `pattern` must match all
    of it once resolved; `form` says what is wanted in words. `empty`: "" is a value too."""

    form: str = "text"
    pattern: str | None = None
    names: bool = True
    secrets: bool = False
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false, nothing else."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds."""

    least: int = 0
    most: int = 2**53


@dataclass(frozen=True, slots=True)
class Number:
    """A number, whole or with decimals."""


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds, written with units. `positive`: zero is refused."""

    positive: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes, written with units."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A Python regular expression, searched in a log line. Names are not resolved: a $ is an end of line."""


@dataclass(frozen=True, slots=True)
class OneOf:
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list. Text items may be splices ("*${args.X}") where `splice` allows it."""

    item: Shape
    splice: bool = False
    least: int = 0


@dataclass(frozen=True, slots=True)
class Words:
    """A list of words, or one text split into words as Compose does (shell quoting, no shell). Splices allowed."""


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping with at most `most` names of the operator's choice, each matching `pattern`."""

    item: Shape
    pattern: str
    form: str
    most: int = 1000


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a record. `note` is for people and editors; `default` says what holds without it."""

    name: str
    shape: Shape
    note: str
    required: bool = False
    default: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with exactly these keys."""

    keys: tuple[Key, ...] = field(default=())

    def key(self, name: str) -> Key | None:
        return next((key for key in self.keys if key.name == name), None)


@dataclass(frozen=True, slots=True)
class Either:
    """One of several shapes, told apart by what is written: a single value, a list or a mapping."""

    one: Shape | None = None
    many: Shape | None = None
    keyed: Shape | None = None


@dataclass(frozen=True, slots=True)
class Overlay:
    """Any part of the record that holds it, to be laid over the rest; checked once it is."""


Shape: TypeAlias = (
    Str | Flag | Whole | Number | Duration | Size | Regex | OneOf | ListOf | Words | MapOf | Record | Either | Overlay
)
