"""What a watcher knows, kept in memory that its own death does not reach: who takes its place goes on where it was.

An anonymous file (memfd_create(2)) that supervisor and watcher both hold open, so it needs no disk and ends with them.
Others find it by its name among the files that those hold open (proc(5), /proc/PID/fd), where no disk can be written.
"""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path
from typing import Any

from lanectl.core.watch import Counters, FileId, Known
from lanectl.store.process import PROC

# Last look and begin of the wait (monotonic seconds, NaN for none), epoch, the file's identity, whether there were
# counters, the counters.
_LOOK = struct.Struct("<ddqQQ?7q")
_NOTE_AT = 512  # where the note of a trip begins: behind the look
_SIZE = 64 * 1024  # a note is some hundred bytes
_NAME = "lanectl-watch-"


class BlackBox:
    """Written by one process at a time, whole at each look. `fd` may be handed to a process that takes part.

    `key`: of the watchdog whose it is.
    """

    def __init__(self, fd: int | None = None, key: str = "") -> None:
        self.fd = os.memfd_create(_NAME + key) if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, _SIZE)

    @classmethod
    def of(cls, pid: int, key: str) -> BlackBox | None:
        """Given a process of a watchdog, return its box, to be read and closed; None when it holds none, or may not be
        asked."""
        link, files = f"/memfd:{_NAME}{key} (deleted)", PROC / str(pid) / "fd"
        try:
            for entry in files.iterdir():
                if _leads_to(entry) == link:
                    return cls(os.open(entry, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass  # it ended meanwhile, or is somebody else's
        return None

    def close(self) -> None:
        os.close(self.fd)

    def looked(self, at: float, known: Known) -> None:
        """Remember what is known after the look at `at`."""
        file, counters = known.file or FileId(0, 0), known.counters
        words = (0,) * 7
        if counters is not None:
            words = (
                counters.published,
                counters.completed,
                counters.timeouts,
                counters.rows,
                counters.tokens,
                counters.wait_ns,
                counters.waits,
            )
        since = math.nan if known.pending_since is None else known.pending_since
        look = _LOOK.pack(at, since, known.epoch, file.device, file.inode, counters is not None, *words)
        os.pwrite(self.fd, look, 0)

    def last_look(self) -> tuple[float, Known] | None:
        """Return when the last look was and what was known then; None before the first."""
        at, since, epoch, device, inode, has_counters, *words = _LOOK.unpack(os.pread(self.fd, _LOOK.size, 0))
        if not at:
            return None
        known = Known(
            counters=Counters(*words) if has_counters else None,
            file=FileId(device, inode) if inode else None,
            pending_since=None if math.isnan(since) else since,
            epoch=epoch,
        )
        return at, known

    def note(self, value: Any) -> None:
        """Leave a note (JSON) of what is about to be done, for who has to finish it."""
        text = json.dumps(value).encode()
        os.pwrite(self.fd, text.ljust(_SIZE - _NOTE_AT, b"\0"), _NOTE_AT)

    def noted(self) -> Any:
        """Return the note, None when there is none."""
        text = os.pread(self.fd, _SIZE - _NOTE_AT, _NOTE_AT).rstrip(b"\0")
        return json.loads(text) if text else None


def _leads_to(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:
        return ""  # closed meanwhile
