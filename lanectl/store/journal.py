"""A swap's journal on disk: durable appends by whoever holds the lock, and the state they fold to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lanectl.core.journal import (
    FIRST_PREV,
    DamagedJournal,
    Kind,
    NeverOpened,
    Reading,
    Record,
    SwapState,
    encode,
    extend,
    fold,
    line_digest,
    read,
)
from lanectl.errors import LaneError
from lanectl.ports import Clock
from lanectl.store.files import AppendLog, ensure_dir, explained, open_regular, read_bytes, release, reserve

# A swap writes some 40 records of 1-8 KiB; the ARMED and COMMITTED records are the long ones. Four times that.
RESERVED_BYTES = 1024 * 1024
RESERVE_NAME = "reserve"
CLOSED_WITHIN = 8192  # a closed record is some 300 bytes: an outcome, a hash, a time


class Journal:
    """One open journal. The writer must hold the site's lock.

    `state` is always the fold of what is durably on disk, unless it is kept in memory (`unwritten`).
    """

    def __init__(self, path: Path, clock: Clock, swap: str, *, written: bool = True) -> None:
        self.path = path
        self._clock = clock
        self._reserve = path.parent / RESERVE_NAME
        self._log: AppendLog | None = AppendLog(path, self._reserve) if written else None
        self._swap = swap
        self._records: list[Record] = []
        self._prev = FIRST_PREV
        self._state: SwapState | None = None

    @classmethod
    def create(cls, path: Path, clock: Clock, swap: str, opened: Mapping[str, Any]) -> Journal:
        """Make the swap's directory, reserve disk space for its records, and write the opened record."""
        ensure_dir(path.parent)
        reserve(path.parent / RESERVE_NAME, RESERVED_BYTES)
        try:
            journal = cls(path, clock, swap)
            journal.append(Kind.OPENED, data=opened)
        except LaneError:
            release(path.parent / RESERVE_NAME)
            raise
        return journal

    @classmethod
    def unwritten(cls, path: Path, clock: Clock, swap: str, opened: Mapping[str, Any]) -> Journal:
        """Return a journal that is kept in memory only, for what must be done although nothing can be written."""
        journal = cls(path, clock, swap, written=False)
        journal.append(Kind.OPENED, data=opened)
        return journal

    @classmethod
    def resume(cls, path: Path, clock: Clock) -> Journal:
        """Open an existing journal for appending; a torn last line is cut off first.

        Raise `DamagedJournal` when its records do not fold, `LaneError` when it cannot be read or has damage beyond
        a torn last line (see `lanectl.core.journal.read`).
        """
        reading, state = _load(path)
        if reading.torn:
            with explained(path, "cut the torn last line of"):
                os.truncate(path, reading.whole_bytes)
        journal = cls(path, clock, state.swap)
        journal._records = list(reading.records)
        journal._prev = line_digest(encode(reading.records[-1]))
        journal._state = state
        return journal

    @property
    def written(self) -> bool:
        """True when its records are on disk."""
        return self._log is not None

    @property
    def state(self) -> SwapState:
        if self._state is None:
            raise AssertionError("a journal begins with its opened record")
        return self._state

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(self._records)

    def append(self, kind: Kind, step: str = "", data: Mapping[str, Any] | None = None, attempt: int = 1) -> None:
        """Append one record and make it durable. Raise `LaneError` when it is not on disk; nothing of it stays then.

        A full disk is met by giving up the reserved space.
        """
        record = Record(
            seq=len(self._records) + 1,
            at=self._clock.wall(),
            mono=round(self._clock.monotonic(), 6),
            swap=self._swap,
            kind=kind,
            step=step,
            attempt=attempt,
            data=dict(data or {}),
            prev=self._prev,
        )
        state = extend(self._state, record)
        line = encode(record)
        if self._log is not None:
            self._log.append(line)
        self._records.append(record)
        self._prev = line_digest(line)
        self._state = state

    def close(self) -> None:
        """Close the file and give back the reserved space."""
        if self._log is not None:
            self._log.close()
        release(self._reserve)


def load(path: Path) -> SwapState:
    """Given a journal's path, return its state without opening it for writing. Raise as `Journal.resume`."""
    return _load(path)[1]


def is_closed(path: Path) -> bool:
    """True when the journal's last line is a whole `closed` record: that swap owes nothing any more.

    Reads the end only, so that a site with a thousand swaps behind it is looked at as fast as a new one. Anything
    that is not plainly so, a missing file too, is False.
    """
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - CLOSED_WITHIN))
            body, _, rest = file.read().rpartition(b"\n")
        last = json.loads(body.rpartition(b"\n")[2])
        return not rest and last["kind"] == Kind.CLOSED
    except (OSError, ValueError, KeyError, TypeError):
        return False


def load_all(paths: Iterable[Path]) -> tuple[SwapState, ...]:
    """Given journals' paths, return their states; one that was never opened is left out. Raise `DamagedJournal`."""
    states = []
    for path in paths:
        try:
            states.append(load(path))
        except NeverOpened:
            continue
    return tuple(states)


def records(path: Path) -> tuple[Record, ...]:
    """Given a journal's path, return its records. Raise as `Journal.resume`."""
    return _load(path)[0].records


def _load(path: Path) -> tuple[Reading, SwapState]:
    reading = read(read_bytes(path) or b"")
    if reading.damage:
        raise DamagedJournal(f"{path}: {reading.damage}", "run `lanectl recover`; never edit a journal")
    return reading, fold(reading.records)
