"""Read a YAML file into a tree in which every node knows its file and line.

Built from the parser's events with a stack of its own: nothing here recurses, so no input can exhaust a stack. Scalars
stay text: what `on`, `no`, `0o17` or `1:30` mean is decided by the key that asks, never by YAML 1.1's guesses.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lanectl.errors import Problem
from lanectl.site.tree import ListNode, MapNode, Node, ScalarNode

MAX_BYTES = 256 * 1024  # the largest shipped lane is 8 KiB
MAX_DEPTH = 64  # the deepest key of a lane is 8 levels down
MAX_NODES = 10_000  # a lane has hundreds; counted after aliases are expanded, so that few lines cannot mean billions
INDENT = 2  # what a step of indentation is taken for where a tab stands in its place


# Written as an escape ("\\e"), these reach a terminal, a program's arguments or a log as something nobody can see.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Stop(Exception):
    """The document cannot be read any further."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(slots=True)
class _Built:
    """A finished node, how many nodes it stands for and how deep it goes, aliases expanded."""

    node: Node
    size: int
    height: int


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet. In a mapping, keys and values alternate in `parts`."""

    mapping: bool
    where: str
    anchor: str | None
    parts: list[_Built] = field(default_factory=list)


def read_file(path: Path, name: str) -> tuple[Node | None, list[Problem]]:
    """Given a file and the name to call it by, return its tree (None when it has none) and everything wrong with it."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a directory, or a pipe that would block for ever
            return None, [Problem(name, "not a regular file")]
        if status.st_size > MAX_BYTES:
            return None, [Problem(name, f"larger than {MAX_BYTES} bytes")]
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return None, [Problem(name, f"cannot be read: {_reason(error)}")]
    return read_bytes(data, name)


def read_bytes(data: bytes, name: str) -> tuple[Node | None, list[Problem]]:
    """Given a file's bytes, return its tree (None when it has none) and every problem found while reading it."""
    if len(data) > MAX_BYTES:
        return None, [Problem(name, f"larger than {MAX_BYTES} bytes")]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return None, [Problem(f"{name}:{line}", f"not UTF-8 text (byte {data[error.start]:#04x})")]
    builder = _Builder(name)
    try:
        return builder.build(text), builder.problems
    except _Stop as stop:
        first = stop.problem
    tabs = _tab_lines(text)
    if not tabs:
        return None, [*builder.problems, first]
    return _read_past_tabs(text, name, tabs)


def _read_past_tabs(text: str, name: str, tabs: list[int]) -> tuple[Node | None, list[Problem]]:
    """Report every tab in the indentation, then read on as if it had been spaces, so that nothing else stays hidden."""
    found = [
        Problem(f"{name}:{line}", "a tab in the indentation", hint="YAML is indented with spaces") for line in tabs
    ]
    builder = _Builder(name)
    try:
        node = builder.build(_untab(text))
    except _Stop:
        return None, [*found, *builder.problems]
    return node, [*found, *builder.problems]


def _tab_lines(text: str) -> list[int]:
    return [number for number, line in enumerate(text.split("\n"), 1) if "\t" in _indent(line) and line.strip()]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _untab(text: str) -> str:
    """Return the text with spaces for the tabs in its indentation, as the lines around them suggest.

    A line goes one step in after a line that ends in a colon; where its indentation was seen before, back to there;
    else it stays beside the line above it.
    """
    seen: dict[str, int] = {}
    above, opens = 0, False
    lines = []
    for line in text.split("\n"):
        body = line.lstrip(" \t")
        if "\t" in _indent(line) and body:
            above = seen.setdefault(_indent(line), above + INDENT if opens else above)
            lines.append(" " * above + body)
        else:
            above = len(_indent(line)) if body else above
            lines.append(line)
        opens = body.rstrip().endswith(":") if body else opens
    return "\n".join(lines)


def _reason(error: Exception) -> str:
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


class _Builder:
    """Turns one document's events into a tree. One use."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self.anchors: dict[str, _Built | None] = {}  # None while the anchored node is still open
        self.open: list[_Open] = []
        self.root: _Built | None = None
        self.nodes = 0

    def build(self, text: str) -> Node | None:
        """Return the tree. Raise `_Stop` at what ends the reading: a syntax error or a bound."""
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        documents = 0
        try:
            for event in yaml.parse(text, Loader=loader):
                if isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        raise self.stop(event, "a second document; a file holds one")
                self.take(yaml, event)
        except yaml.YAMLError as error:
            raise _Stop(self.syntax(error, text)) from None
        if self.root is None or (isinstance(self.root.node, ScalarNode) and self.root.node.null):
            self.problems.append(Problem(self.name, "empty"))
            return None
        return self.root.node

    def take(self, yaml: Any, event: Any) -> None:
        where = self.place(event)
        if getattr(event, "tag", None) is not None:
            self.problems.append(Problem(where, "a tag (!…) means nothing here", hint="leave it out"))
        if isinstance(event, yaml.ScalarEvent):
            self.scalar(event, where)
        elif isinstance(event, yaml.AliasEvent):
            self.alias(event)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            if len(self.open) >= MAX_DEPTH:
                raise self.stop(event, f"nested deeper than {MAX_DEPTH} levels")
            if event.anchor:
                self.anchors[event.anchor] = None
            self.open.append(_Open(isinstance(event, yaml.MappingStartEvent), where, event.anchor))
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            self.close(event)

    def scalar(self, event: Any, where: str) -> None:
        try:
            event.value.encode()
        except UnicodeEncodeError:
            self.problems.append(Problem(where, "a character that is not Unicode text"))
        if _CONTROL.search(event.value):
            self.problems.append(Problem(where, "a control character"))
        clean = _CONTROL.sub("", event.value).encode("utf-8", "replace").decode()
        self.add(event, _Built(ScalarNode(clean, not event.style, where), 1, 1), event.anchor)

    def alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            raise self.stop(event, f"no anchor &{event.anchor} before this alias")
        built = self.anchors[event.anchor]
        if built is None:
            raise self.stop(event, f"&{event.anchor} contains itself")
        if len(self.open) + built.height > MAX_DEPTH:
            raise self.stop(event, f"nested deeper than {MAX_DEPTH} levels")
        self.add(event, built, None)

    def close(self, event: Any) -> None:
        frame = self.open.pop()
        node: Node
        if frame.mapping:
            node = MapNode(self.entries(frame), frame.where)
        else:
            node = ListNode(tuple(part.node for part in frame.parts), frame.where)
        size = 1 + sum(part.size for part in frame.parts)
        height = 1 + max((part.height for part in frame.parts), default=0)
        self.add(event, _Built(node, size, height), frame.anchor, counted=True)

    def add(self, event: Any, built: _Built, anchor: str | None, counted: bool = False) -> None:
        self.nodes += 1 if counted else built.size
        if self.nodes > MAX_NODES:
            raise self.stop(event, f"stands for more than {MAX_NODES} values")
        if anchor:
            self.anchors[anchor] = built
        if self.open:
            self.open[-1].parts.append(built)
        else:
            self.root = built

    def entries(self, frame: _Open) -> tuple[tuple[ScalarNode, Node], ...]:
        """Return the mapping's own entries, duplicates reported and dropped, then those of its merge keys (<<)."""
        own: dict[str, tuple[ScalarNode, Node]] = {}
        merged: list[MapNode] = []
        for key, value in zip(frame.parts[::2], frame.parts[1::2], strict=True):
            if not isinstance(key.node, ScalarNode):
                self.problems.append(Problem(key.node.where, f"a key must be text, not {_kind(key.node)}"))
            elif key.node.plain and key.node.text == "<<":
                merged += self.merges(value.node)
            elif key.node.text in own:
                line = own[key.node.text][0].where.rpartition(":")[2]
                self.problems.append(Problem(key.node.where, f"{key.node.text} is given twice (first on line {line})"))
            else:
                own[key.node.text] = (key.node, value.node)
        for source in merged:
            for name, node in source.items:
                own.setdefault(name.text, (name, node))
        return tuple(own.values())

    def merges(self, node: Node) -> list[MapNode]:
        parts = node.items if isinstance(node, ListNode) else (node,)
        maps = [part for part in parts if isinstance(part, MapNode)]
        if len(maps) != len(parts):
            self.problems.append(Problem(node.where, "<< merges a mapping or a list of mappings"))
        return maps

    def place(self, event: Any) -> str:
        return f"{self.name}:{event.start_mark.line + 1}"

    def stop(self, event: Any, message: str) -> _Stop:
        return _Stop(Problem(self.place(event), message))

    def syntax(self, error: Exception, text: str) -> Problem:
        mark = getattr(error, "problem_mark", None)
        position = getattr(error, "position", None)
        line = mark.line + 1 if mark else text.count("\n", 0, position) + 1 if isinstance(position, int) else 1
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        written = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
        hint = "inside [ ] and { }, quote what holds ${…}" if "${" in written else ""
        return Problem(f"{self.name}:{line}", f"not YAML: {what}", hint=hint)


def _kind(node: Node) -> str:
    return "a list" if isinstance(node, ListNode) else "a mapping"
