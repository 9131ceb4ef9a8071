"""The shape of a YAML file with every node's place in it: what the reader makes and the shapes read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A scalar as it is written. `plain` is false for quoted and block text: only plain text can mean true or 17."""

    text: str
    plain: bool
    where: str

    @property
    def null(self) -> bool:
        return self.plain and self.text in ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, slots=True)
class ListNode:
    items: tuple[Node, ...]
    where: str


@dataclass(frozen=True, slots=True)
class MapNode:
    """A mapping in file order, its keys unique."""

    items: tuple[tuple[ScalarNode, Node], ...]
    where: str

    def get(self, key: str) -> Node | None:
        """Return the key's node, None when the key is not there."""
        return next((node for name, node in self.items if name.text == key), None)


Node: TypeAlias = ScalarNode | ListNode | MapNode


def describe(node: Node) -> str:
    """Return what the node is, in a person's words and without its value (which may be a secret)."""
    if isinstance(node, ListNode):
        return "a list"
    if isinstance(node, MapNode):
        return "a mapping"
    return "empty" if node.null else "text" if not node.plain else "a single value"


def overlay(base: Node, over: Node) -> Node:
    """Return `base` with `over` laid on it: mappings merge key by key, anything else replaces. Places are kept."""
    if not isinstance(base, MapNode) or not isinstance(over, MapNode):
        return over
    merged: dict[str, tuple[ScalarNode, Node]] = {name.text: (name, node) for name, node in base.items}
    for name, node in over.items:
        known = merged.get(name.text)
        merged[name.text] = (name, overlay(known[1], node) if known else node)
    return MapNode(tuple(merged.values()), base.where)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint naming what was probably meant, else every known name; empty when there is none."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"known: {', '.join(names)}" if names else ""
