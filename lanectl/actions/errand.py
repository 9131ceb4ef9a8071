"""One call in a thread of its own, so that whatever hangs in it holds up nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Errand(Generic[T]):
    """Runs `call` in a daemon thread from its making on; one that never comes back is simply left behind."""

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._call = call
        self._outcome: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def done(self, within_s: float) -> bool:
        """Wait for it, at most `within_s`; return whether it is back."""
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def result(self) -> T:
        """Return what the call returned, raise what it raised. Only once `done`."""
        if self._error is not None:
            raise self._error
        return self._outcome[0]

    def _run(self) -> None:
        try:
            self._outcome.append(self._call())
        except BaseException as error:
            self._error = error
