"""Wait for a state by looking, never by sleeping a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_EVERY_S = 0.01  # short enough not to matter, long enough not to starve a 2-core machine


def until(look: Callable[[], T], within_s: float, what: str) -> T:
    """Given a look, return its first true value. Raise AssertionError naming `what` after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while True:
        value = look()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what} (last look: {value!r})")
        time.sleep(LOOK_EVERY_S)
