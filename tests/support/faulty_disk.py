"""A file system on which a chosen operation fails: what lanectl.store does to files, one operation after the other.

The seam is the `os` of lanectl.store.files, and the renames and directories that it asks of pathlib. Operations are
counted from 1; reading is none.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.mortal import Died

ONCE, FOR_GOOD, SHORT, TORN, DIES = "once", "for good", "short", "torn", "dies"
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class FaultyDisk:
    """At the `at`-th operation (0: never) something goes wrong, `how`:

    `once`: it fails, and the next one does not; `for good`: it and every later one fail, as on a file system that was
    mounted read-only; `short`: a write takes half, which is no failure; `torn`: a write takes half, and the next one
    finds no space; `dies`: the process dies once it is done.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, at: int = 0, how: str = ONCE) -> None:
        self.operations: list[str] = []
        self.at = at
        self.how = how
        self._number = errno.EROFS if how == FOR_GOOD else errno.EIO
        self.on_death: Callable[[], object] = lambda: None
        self._root = root
        self._paths: dict[int, str] = {}
        self._torn = False
        monkeypatch.setattr("lanectl.store.files.os", self)
        for name in ("replace", "mkdir"):
            monkeypatch.setattr(Path, name, self._wrapped(name, getattr(Path, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @property
    def struck(self) -> bool:
        """Whether the chosen operation was reached."""
        return 0 < self.at <= len(self.operations)

    def heal(self) -> None:
        self.at = 0

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        fd = (
            self._do("open", str(path), lambda: os.open(path, flags, mode)) if flags & WRITING else os.open(path, flags)
        )
        self._paths[fd] = str(path)
        return fd

    def write(self, fd: int, data: Any) -> int:
        if self._torn:
            self._torn = False
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        half = len(self.operations) + 1 == self.at and self.how in (SHORT, TORN)
        self._torn = half and self.how == TORN
        part = data[: len(data) // 2] if half else data
        return int(self._do("write", self._paths.get(fd, ""), lambda: os.write(fd, part)))

    def fsync(self, fd: int) -> None:
        self._do("fsync", self._paths.get(fd, ""), lambda: os.fsync(fd))

    def ftruncate(self, fd: int, size: int) -> None:
        self._do("ftruncate", self._paths.get(fd, ""), lambda: os.ftruncate(fd, size))

    def posix_fallocate(self, fd: int, offset: int, size: int) -> None:
        self._do("fallocate", self._paths.get(fd, ""), lambda: os.posix_fallocate(fd, offset, size))

    def _wrapped(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Path, *words: Any, **named: Any) -> Any:
            if not path.is_relative_to(self._root):
                return method(path, *words, **named)
            return self._do(name, str(path), lambda: method(path, *words, **named))

        return call

    def _do(self, name: str, path: str, act: Callable[[], Any]) -> Any:
        self.operations.append(f"{name} {Path(path).name}")
        now = len(self.operations) == self.at
        later = self.struck and not now
        if (now and self.how == ONCE) or ((now or later) and self.how == FOR_GOOD):
            raise OSError(self._number, os.strerror(self._number))
        if later and self.how == DIES:
            raise Died
        done = act()
        if now and self.how == DIES:
            self.on_death()
            raise Died
        return done
