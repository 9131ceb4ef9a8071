"""`lanectl audit`: the trail as it is on disk."""

from __future__ import annotations

from typing import Any

from lanectl.errors import Problem
from lanectl.store.audit import entries, verify
from lanectl.store.layout import StateDir


def newest(state: StateDir, count: int) -> list[dict[str, Any]]:
    """Return the last `count` entries that can be read, oldest first."""
    return list(entries(state.audit))[-count:] if count else []


def check(state: StateDir) -> tuple[int, list[Problem]]:
    """Return how many lines there are and everything wrong with their chain."""
    return verify(state.audit)
