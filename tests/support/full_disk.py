"""A disk that is full for a while, where nothing can be mounted: what lanectl's store writes meets ENOSPC.

Space that was reserved beforehand can be written once it is given back, as on a real disk.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from lanectl.store.journal import RESERVE_NAME, RESERVED_BYTES


class FullDisk:
    """The `os` of lanectl.store.files from now on. `full`: nothing more can be written, but what was given back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self._room = 0
        unlink = Path.unlink
        monkeypatch.setattr("lanectl.store.files.os", self)
        monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: self._unlink(unlink, path, missing_ok))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fill(self) -> None:
        self.full, self._room = True, 0

    def write(self, fd: int, data: Any) -> int:
        self._take(len(data))
        return os.write(fd, data)

    def posix_fallocate(self, fd: int, offset: int, size: int) -> None:
        self._take(size)
        os.posix_fallocate(fd, offset, size)

    def _take(self, size: int) -> None:
        if not self.full:
            return
        if size > self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._room -= size

    def _unlink(self, unlink: Any, path: Path, missing_ok: bool) -> None:
        unlink(path, missing_ok)
        if path.name == RESERVE_NAME:
            self._room += RESERVED_BYTES
