"""The operator's audit trail: who, where, which command, intent before the act and outcome after it; hash-chained.

`state/audit.jsonl`, one JSON object a line; `prev` is the sha256 of the line before without its line end (64 zeros for
the first). One writer at a time: the holder of the site's lock and a watchdog that trips may have a line at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lanectl.errors import LaneError, Problem
from lanectl.ports import Clock
from lanectl.store.files import AppendLog, ensure_dir, explained, read_bytes

FORMAT = 1
FIRST_PREV = "0" * 64
INTENT = "intent"
OUTCOME = "outcome"
REPAIRED = "repaired"


class Audit:
    """The audit file of one site."""

    def __init__(self, path: Path, clock: Clock, who: Mapping[str, str]) -> None:
        self._path = path
        self._clock = clock
        self._who = dict(who)

    def write(self, event: str, command: str, data: Mapping[str, Any]) -> None:
        """Append one durable line. Raise `LaneError` when it could not be written; nothing of it stays then.

        A torn last line (the machine died while it was written) is cut off first and its removal recorded.
        """
        ensure_dir(self._path.parent)
        with self._alone(), AppendLog(self._path) as log:
            seq, prev = self._last()
            if log.torn:
                seq, prev = self._line(log, seq, prev, REPAIRED, command, {"removed_bytes": len(log.torn)})
            self._line(log, seq, prev, event, command, data)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only writer, which takes some milliseconds; the kernel frees the lock when one dies."""
        with explained(self._path.parent, "lock"):
            fd = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with explained(self._path.parent, "lock"):
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _line(
        self, log: AppendLog, seq: int, prev: str, event: str, command: str, data: Mapping[str, Any]
    ) -> tuple[int, str]:
        entry = {"v": FORMAT, "seq": seq + 1, "at": self._clock.wall(), **self._who}
        entry |= {"event": event, "command": command, "data": dict(data), "prev": prev}
        line = json.dumps(entry, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
        log.append(line)
        return seq + 1, hashlib.sha256(line).hexdigest()

    def _last(self) -> tuple[int, str]:
        """Return the last line's sequence and digest."""
        whole = read_bytes(self._path) or b""
        if not whole:
            return 0, FIRST_PREV
        last = whole[:-1].rpartition(b"\n")[2]
        try:
            return int(json.loads(last)["seq"]), hashlib.sha256(last).hexdigest()
        except (ValueError, KeyError, TypeError) as error:
            raise LaneError(
                f"{self._path}: the last line cannot be read: {error}", "run `lanectl audit verify`"
            ) from error


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries that can be read, oldest first. A missing file has none."""
    for line in (read_bytes(path) or b"").split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def verify(path: Path) -> tuple[int, list[Problem]]:
    """Check every line: readable, in sequence, chained to the one before. Return the lines and the problems."""
    problems: list[Problem] = []
    prev, seq = FIRST_PREV, 0
    content = read_bytes(path) or b""
    lines = content.split(b"\n")
    if lines.pop():
        problems.append(Problem(f"{path}:{len(lines) + 1}", "the last line is torn (no line end)"))
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        try:
            entry = json.loads(line)
            found_seq, found_prev = entry["seq"], entry["prev"]
        except (ValueError, KeyError, TypeError) as error:
            problems.append(Problem(where, f"cannot be read: {error}"))
        else:
            if found_seq != seq + 1:
                problems.append(Problem(where, f"sequence {found_seq} where {seq + 1} belongs"))
            if found_prev != prev:
                problems.append(Problem(where, "does not follow the line before it: that line was changed or removed"))
            seq = found_seq if isinstance(found_seq, int) else seq + 1
        prev = hashlib.sha256(line).hexdigest()
    return len(lines), problems
