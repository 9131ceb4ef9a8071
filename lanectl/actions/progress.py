"""What an action tells the person who watches it. The command line draws it; tests collect it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives what happens, as it happens. Never raises: a closed terminal must not stop a restore."""

    def phase(self, phase: str, text: str) -> None:
        """A phase was entered: its published name and a line for a person."""
        ...

    def note(self, text: str) -> None:
        """A line worth keeping on the screen."""
        ...

    def ticker(self, text: str) -> None:
        """What is going on right now, such as the last log line of a booting service; the next one replaces it."""
        ...


class Silent:
    """Shows nothing: for the guard and for tests that look elsewhere."""

    def phase(self, phase: str, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def ticker(self, text: str) -> None: ...
