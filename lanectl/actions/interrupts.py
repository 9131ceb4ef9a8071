"""Signals become one exception at the next step boundary of the forward leg; the way back cannot be interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from lanectl.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


ON_ITS_WAY = "production is being brought back, this cannot be cut short"


@contextmanager
def held_off(notify: Callable[[str], None], signals: Sequence[signal.Signals] = SIGNALS) -> Iterator[None]:
    """For the way back alone: these signals are told to `notify` and end nothing."""

    def handle(number: int, frame: FrameType | None) -> None:
        notify(f"{signal.Signals(number).name}: {ON_ITS_WAY}")

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupts:
    """Remembers that somebody asked us to stop. `check` raises `Interrupted`; `ignore` is the check of the way back."""

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        self._notify: Callable[[str], None] = lambda text: None

    def check(self) -> None:
        """Raise `Interrupted` when somebody asked us to stop."""
        if self.asked is not None:
            raise Interrupted(f"interrupted by {self.asked.name}")

    @staticmethod
    def ignore() -> None:
        """The check of the way back: it never raises."""

    @contextmanager
    def caught(self, notify: Callable[[str], None]) -> Iterator[None]:
        """Catch the signals for the duration of a swap; `notify` is told what a signal will lead to."""
        self._notify = notify
        before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again = self.asked is not None
        self.asked = self.asked or signal.Signals(number)
        self._notify(
            "already on the way back: production is being restored, this cannot be cut short"
            if again
            else f"{signal.Signals(number).name}: stopping at the next step and restoring what is owed"
        )
