"""A running action on the screen: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from lanectl.actions.progress import Progress
from lanectl.cli import render
from lanectl.core.log_lines import one_line

TICK_EVERY_S = 5.0  # without a terminal: often enough to see life, seldom enough for a log file
REFRESH_PER_S = 8


@contextmanager
def progress(tick_every_s: float = TICK_EVERY_S) -> Iterator[Progress]:
    """Give what an action reports to: live on a terminal, plain lines on stderr otherwise, of what is going on right
    now one every `tick_every_s`. It never raises."""
    live = _started() if sys.stderr.isatty() else None
    try:
        yield Steady(live or Plain(tick_every_s=tick_every_s))
    finally:
        if live is not None:
            with contextlib.suppress(Exception):
                live.stop()


def _started() -> Live | None:
    """Return a live display, None where this terminal cannot have one: plain lines do as well."""
    try:
        live = Live()
        live.start()
    except Exception:
        return None
    return live


class Steady:
    """Passes everything on and swallows what that raises: a closed terminal must not stop a restore.

    A signal's handler may print in the middle of a print, which Python refuses with a RuntimeError.
    """

    def __init__(self, inner: Progress) -> None:
        self._inner = inner

    def phase(self, phase: str, text: str) -> None:
        with contextlib.suppress(Exception):
            self._inner.phase(phase, text)

    def note(self, text: str) -> None:
        with contextlib.suppress(Exception):
            self._inner.note(text)

    def ticker(self, text: str) -> None:
        with contextlib.suppress(Exception):
            self._inner.ticker(text)


class Plain:
    """Plain lines, `HH:MM:SS PHASE text`; what is going on right now only every few seconds."""

    def __init__(
        self,
        line: Callable[[str], None] = render.err,
        clock: Callable[[], float] = time.monotonic,
        tick_every_s: float = TICK_EVERY_S,
    ) -> None:
        self._line = line
        self._clock = clock
        self._tick_every_s = tick_every_s
        self._phase = ""
        self._entered = self._ticked = clock()

    def phase(self, phase: str, text: str) -> None:
        self._phase = phase
        self._entered = self._ticked = self._clock()
        self._line(_stamped(phase, text))

    def note(self, text: str) -> None:
        self._line(_stamped("", text))

    def ticker(self, text: str) -> None:
        now = self._clock()
        if now - self._ticked >= self._tick_every_s:
            self._ticked = now
            self._line(_stamped(self._phase, f"{now - self._entered:.0f} s: {text}"))


class Live:
    """Passed phases stay on the screen; below them one line says what is going on, and for how long."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._phase, self._now = "", ""
        self._began = self._entered = time.monotonic()
        self._console = Console(stderr=True, highlight=False)
        self._live = RichLive(
            get_renderable=self._line, console=self._console, refresh_per_second=REFRESH_PER_S, transient=True
        )

    def start(self) -> None:
        self._live.start()

    def stop(self) -> None:
        self._live.stop()

    def phase(self, phase: str, text: str) -> None:
        self._phase, self._now, self._entered = phase, "", time.monotonic()
        self._print(_stamped(phase, text))

    def note(self, text: str) -> None:
        self._print(_stamped("", text))

    def ticker(self, text: str) -> None:
        self._now = one_line(text)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, overflow="ellipsis", no_wrap=True)

    def _line(self) -> Any:
        from rich.text import Text

        now = time.monotonic()
        elapsed = f"{now - self._entered:6.1f} s (swap {now - self._began:.0f} s)"
        line = Text(f"         {self._phase:<11} {elapsed}  {self._now}", no_wrap=True, overflow="ellipsis")
        line.stylize("dim", 0, 9)
        return line


def _stamped(phase: str, text: str) -> str:
    return f"{datetime.now():%H:%M:%S} {phase:<11} {one_line(text)}"
