"""One look at a sidecar's counters: two calls of the system, some microseconds.

It reads with pread on a descriptor that is kept, never through a mapping: a file that another process truncates kills
whoever reads a mapping of it with SIGBUS. What the path names now, and its size, is asked for after that.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lanectl.core.watch import WORDS, Counters, FileId, decode
from lanectl.store.files import explained, open_regular


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found: as in `core.watch.Sample`."""

    counters: Counters | None
    file: FileId | None
    unreadable: str


class CounterFile:
    """The counters' file, held open from now on. Raise `StoreError` when it is not there or is no regular file."""

    def __init__(self, path: str) -> None:
        self._path = path
        with explained(Path(path), "open the counters"):
            self._fd = open_regular(Path(path), os.O_RDONLY)
        opened = os.fstat(self._fd)
        self._file, self._size = FileId(opened.st_dev, opened.st_ino), opened.st_size

    def look(self) -> Look:
        """Read the counters of the file that was opened, and see what the path names now. Never raises."""
        try:
            counters = decode(os.pread(self._fd, WORDS.size, 0))
        except OSError as error:
            return Look(None, None, f"{self._path}: {os.strerror(error.errno or 0)}")
        try:
            named = os.stat(self._path)  # noqa: PTH116 - a Path made at each look would double its cost
        except OSError:
            return Look(counters, None, f"{self._path} was removed")
        file, unreadable = FileId(named.st_dev, named.st_ino), ""
        if file == self._file and named.st_size < self._size:
            unreadable = f"{self._path} has {named.st_size} bytes, it had {self._size}"
        elif counters is None:
            unreadable = f"{self._path} is too short, or holds a negative count"
        return Look(counters, file, unreadable)

    def close(self) -> None:
        os.close(self._fd)
