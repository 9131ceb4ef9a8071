"""Read a tree by its shape: every problem is noted with its place and path, and reading goes on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lanectl.core.site import Missing
from lanectl.errors import Problem
from lanectl.site import shapes
from lanectl.site.interpolate import SPLICE, Names, WrongName
from lanectl.site.scalars import convert, form_of
from lanectl.site.secret_literals import secret_kind
from lanectl.site.shapes import Shape
from lanectl.site.tree import ListNode, MapNode, Node, ScalarNode, describe, nearest


@dataclass(frozen=True, slots=True)
class Value:
    """What was read, with its place. `data` is a scalar, a tuple of Values, or a dict of Values.

    `missing`: the text holds a name that station.yaml does not give yet, so its form cannot be judged.
    """

    data: Any
    where: str
    path: str
    missing: bool = False

    def get(self, key: str) -> Value | None:
        found: Value | None = self.data.get(key)
        return found

    def of(self, key: str, default: Any = None) -> Any:
        """Return the data of a key, or the default when the key is not there."""
        found = self.data.get(key)
        return default if found is None else found.data

    def items(self, key: str) -> tuple[Value, ...]:
        """Return the values of a list or mapping key, in order; empty when the key is not there."""
        found = self.data.get(key)
        if found is None:
            return ()
        return tuple(found.data.values()) if isinstance(found.data, dict) else found.data


class ShapeReader:
    """Collects the problems and the missing names of one file. `names` is None where ${…} has no meaning."""

    def __init__(self, names: Names | None) -> None:
        self.names = names
        self.problems: list[Problem] = []
        self.missing: list[Missing] = []

    def wrong(self, value: Value | Node, path: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(value.where, message, path, hint))

    def read(self, shape: Shape, node: Node, path: str) -> Value | None:
        """Return the value, None when it is wrong (which is noted then)."""
        match shape:
            case shapes.Record():
                return self.record(shape, node, path)
            case shapes.MapOf():
                return self.mapping(shape, node, path)
            case shapes.ListOf():
                return self.listed(shape, node, path)
            case shapes.Words():
                return self.words(node, path)
            case shapes.Either():
                return self.either(shape, node, path)
            case shapes.Overlay():
                return self.overlay(node, path)
            case _:
                return self.scalar(shape, node, path)

    def record(self, shape: shapes.Record, node: Node, path: str) -> Value | None:
        if not isinstance(node, MapNode):
            self.wrong(node, path, f"must be a mapping, is {describe(node)}")
            return None
        found: dict[str, Value] = {}
        for name, child in node.items:
            here = f"{path}.{name.text}" if path else name.text
            key = shape.key(name.text)
            if key is None:
                self.wrong(name, here, "unknown key", nearest(name.text, (known.name for known in shape.keys)))
                continue
            value = self.read(key.shape, child, here)
            if value is not None:
                found[name.text] = value
        for key in shape.keys:
            if key.required and node.get(key.name) is None:
                self.wrong(node, path, f"needs the key {key.name}", key.note)
        return Value(found, node.where, path)

    def mapping(self, shape: shapes.MapOf, node: Node, path: str) -> Value | None:
        if isinstance(node, ScalarNode) and node.null:  # every line below it is a comment
            return Value({}, node.where, path)
        if not isinstance(node, MapNode):
            self.wrong(node, path, f"must be a mapping, is {describe(node)}")
            return None
        if len(node.items) > shape.most:
            self.wrong(node, path, f"holds {len(node.items)} names; at most {shape.most} make sense")
            return None
        found: dict[str, Value] = {}
        for name, child in node.items:
            here = f"{path}.{name.text}"
            if re.fullmatch(shape.pattern, name.text) is None:
                self.wrong(name, here, f"the name must be {shape.form}")
                continue
            value = self.read(shape.item, child, here)
            if value is not None:
                found[name.text] = value
        return Value(found, node.where, path)

    def listed(self, shape: shapes.ListOf, node: Node, path: str) -> Value | None:
        if not isinstance(node, ListNode):
            self.wrong(node, path, f"must be a list, is {describe(node)}")
            return None
        if len(node.items) < shape.least:
            self.wrong(node, path, f"needs at least {shape.least} item")
        found: list[Value] = []
        for index, child in enumerate(node.items):
            here = f"{path}[{index}]"
            if shape.splice and isinstance(child, ScalarNode) and SPLICE.fullmatch(child.text):
                found += self.splice(child, here)
                continue
            value = self.read(shape.item, child, here)
            if value is not None:
                found.append(value)
        return Value(tuple(found), node.where, path)

    def splice(self, node: ScalarNode, path: str) -> Iterator[Value]:
        match = SPLICE.fullmatch(node.text)
        if match is None or self.names is None:
            return
        words = self.names.splice(match.group(1), node.where)
        if isinstance(words, Missing):
            self.missing.append(words)
            yield Value(node.text, node.where, path, missing=True)
            return
        for word in words:
            yield Value(word, node.where, path)

    def words(self, node: Node, path: str) -> Value | None:
        if isinstance(node, ScalarNode) and not node.null:
            try:
                parts = shlex.split(node.text)
            except ValueError as error:
                self.wrong(node, path, f"cannot be split into words: {str(error).lower()}", "write a list of words")
                return None
            node = ListNode(tuple(ScalarNode(part, False, node.where) for part in parts), node.where)
        return self.listed(shapes.ListOf(shapes.Str(form="a word", empty=True), splice=True, least=1), node, path)

    def either(self, shape: shapes.Either, node: Node, path: str) -> Value | None:
        kinds = {"a single value": shape.one, "a list": shape.many, "a mapping": shape.keyed}
        kind = (
            "a list" if isinstance(node, ListNode) else "a mapping" if isinstance(node, MapNode) else "a single value"
        )
        chosen = kinds[kind]
        if chosen is None:
            allowed = " or ".join(name for name, option in kinds.items() if option is not None)
            self.wrong(node, path, f"must be {allowed}, is {describe(node)}")
            return None
        return self.read(chosen, node, path)

    def overlay(self, node: Node, path: str) -> Value | None:
        if not isinstance(node, MapNode):
            self.wrong(node, path, f"must be a mapping, is {describe(node)}")
            return None
        return Value(node, node.where, path)

    def scalar(self, shape: Shape, node: Node, path: str) -> Value | None:
        if not isinstance(node, ScalarNode):
            self.wrong(node, path, f"must be {form_of(shape)}, is {describe(node)}")
            return None
        if isinstance(shape, shapes.Str):
            return self.text(shape, node, path)
        if node.null:
            self.wrong(node, path, f"has no value; must be {form_of(shape)}")
            return None
        try:
            return Value(convert(shape, node), node.where, path)
        except ValueError as error:
            self.wrong(node, path, str(error))
            return None

    def text(self, shape: shapes.Str, node: ScalarNode, path: str) -> Value | None:
        if node.null or (not node.text and not shape.empty):
            self.wrong(node, path, f"has no value; must be {shape.form}", '"" is an empty text' if shape.empty else "")
            return None
        kind = secret_kind(node.text)
        if kind:
            self.wrong(node, path, f"a literal {kind}", "keep it in a 0600 file or a variable: station.yaml secrets:")
            return None
        resolved = node.text
        missing = False
        if shape.names:
            answer = self.resolve(shape, node, path)
            if answer is None:
                return None
            resolved, missing = answer
        if shape.pattern is not None and not missing and re.fullmatch(shape.pattern, resolved) is None:
            self.wrong(node, path, f"must be {shape.form}")
            return None
        return Value(resolved, node.where, path, missing)

    def resolve(self, shape: shapes.Str, node: ScalarNode, path: str) -> tuple[str, bool] | None:
        if self.names is None:
            if "${" in node.text:
                self.wrong(node, path, "${…} means nothing here", "names are for lanes; station.yaml gives the values")
                return None
            return node.text, False
        if SPLICE.fullmatch(node.text):
            self.wrong(node, path, "a splice belongs in a list")
            return None
        try:
            resolved = self.names.resolve(node.text, node.where)
        except WrongName as error:
            self.wrong(node, path, str(error), error.hint)
            return None
        if resolved.secret and not shape.secrets:
            self.wrong(node, path, "a secret is not allowed here", "only in environment values and in ready.api_key")
            return None
        self.missing += resolved.missing
        return resolved.text, bool(resolved.missing)
