"""Locks between test processes: one at a time, and many users of one thing."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path` alone; the kernel frees it when this process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class SharedUse:
    """Many test processes use one engine; the first one in prepares it and the last one out tidies up.

    Every user holds a shared flock, which the kernel frees on death, so a crash leaves no count behind.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: int | None = None

    def enter(self, prepare: Callable[[], T]) -> T:
        """Take part, run `prepare` alone (it must do nothing when done before), and return what it returns."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder / "change.lock"):
            prepared = prepare()
            self._held = os.open(self._folder / "use.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_SH)
            return prepared

    def leave(self, tidy: Callable[[], None]) -> None:
        """Take no part any longer; run `tidy` when nobody else does."""
        if self._held is None:
            return
        with locked(self._folder / "change.lock"):
            try:
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            else:
                tidy()
            finally:
                os.close(self._held)
                self._held = None
