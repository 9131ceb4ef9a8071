"""The site's lock: whoever holds it may change lanes. The kernel decides who holds it and frees it on death.

What is written inside is for people only. The file is never unlinked: a second file of the same name would be a
second lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import socket
import time
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lanectl.errors import Busy
from lanectl.store.files import ensure_dir, explained, open_regular
from lanectl.store.process import ProcessId, alive, this_process

LOOK_EVERY_S = 0.01
# `holder()` takes a shared lock for some microseconds; who wants the lock just then must not be told that it is held.
PROBE_GRACE_S = 0.2
DEFAULT_DEADLINE_S = 10.0
TEXT_SIZE = 64 * 1024  # far above any command line worth reading


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds the lock, as it wrote itself. `pid` is 0 where the lock is held and its text says nothing (yet)."""

    pid: int = 0
    start_time: int = 0
    boot_id: str = ""
    user: str = ""
    host: str = ""
    since: str = ""
    command: str = ""
    swap: str = ""
    phase: str = ""

    @property
    def process(self) -> ProcessId | None:
        """The holding process, None where it is not known."""
        return ProcessId(self.pid, self.start_time, self.boot_id) if self.pid else None

    def __str__(self) -> str:
        if not self.pid:
            return "a process that has not said who it is"
        parts = [f"pid {self.pid}", f"user {self.user}", f"since {self.since}"]
        parts += [f"swap {self.swap}"] if self.swap else []
        parts += [f"phase {self.phase}"] if self.phase else []
        return f"{self.command or 'lanectl'} ({', '.join(parts)})"


class Lock:
    """`with Lock(path) as lock:` takes it at once or raises `Busy`. Not for use by two threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._text = LockHolder()

    @property
    def held(self) -> bool:
        """True while this object holds the lock."""
        return self._fd >= 0

    def acquire(
        self,
        blocking: bool = False,
        deadline_s: float = DEFAULT_DEADLINE_S,
        *,
        command: str = "",
        swap: str = "",
        phase: str = "",
    ) -> None:
        """Take the lock and write down who we are; with `blocking`, wait up to `deadline_s` for it.

        Raise `Busy` naming the holder, `StoreError` when the file cannot be opened.
        """
        deadline = time.monotonic() + (deadline_s if blocking else min(deadline_s, PROBE_GRACE_S))
        ensure_dir(self.path.parent)
        with explained(self.path, "lock"):
            fd = open_regular(self.path, os.O_RDWR | os.O_CREAT)
            try:
                while not _try_lock(fd, fcntl.LOCK_EX):
                    if time.monotonic() >= deadline:
                        raise Busy(f"{self.path} is held by {self.holder() or LockHolder()}", "see `lanectl status`")
                    time.sleep(LOOK_EVERY_S)
            except BaseException:
                os.close(fd)
                raise
        self._fd = fd
        me = this_process()
        self._text = LockHolder(
            pid=me.pid,
            start_time=me.start_time,
            boot_id=me.boot_id,
            user=_user(),
            host=socket.gethostname(),
            since=datetime.now(UTC).isoformat(timespec="seconds"),
            command=command,
            swap=swap,
            phase=phase,
        )
        self._write()

    def update(self, **changes: str) -> None:
        """Write down what we are doing now: any of `command`, `swap`, `phase`."""
        if not self.held:
            raise RuntimeError("only the holder of a lock may say what it does")
        self._text = LockHolder(**(asdict(self._text) | changes))
        self._write()

    def release(self) -> None:
        """Give it back; not held is fine."""
        if self.held:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1

    def holder(self) -> LockHolder | None:
        """Return who holds the lock, None when nobody does, whatever the file's text says. Raise `StoreError`."""
        with explained(self.path, "look at"):
            try:
                fd = open_regular(self.path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                deadline = time.monotonic() + PROBE_GRACE_S
                while not _try_lock(fd, fcntl.LOCK_SH):
                    text = _parse(os.pread(fd, TEXT_SIZE, 0))
                    # The text of a holder that died stands until the next one has written its own.
                    if text is not None and text.process is not None and alive(text.process):
                        return text
                    if time.monotonic() >= deadline:
                        return LockHolder()
                    time.sleep(LOOK_EVERY_S)
                return None
            finally:
                os.close(fd)

    def __enter__(self) -> Lock:
        if not self.held:
            self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _write(self) -> None:
        """Best effort: a full disk must not keep anybody from taking the lock and restoring a lane."""
        data = json.dumps(asdict(self._text), sort_keys=True).encode() + b"\n"
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _parse(data: bytes) -> LockHolder | None:
    """Given the file's bytes, return the holder they describe, None when they are torn or somebody else's."""
    try:
        text: Any = json.loads(data)
        known = {field.name: text[field.name] for field in fields(LockHolder)}
    except (ValueError, TypeError, KeyError):
        return None
    numbers = isinstance(known["pid"], int) and isinstance(known["start_time"], int)
    return LockHolder(**known) if numbers else None


def _user() -> str:
    """The login name, and who became it: `root (sudo: ana)`."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = str(os.geteuid())
    sudo = os.environ.get("SUDO_USER")
    return f"{name} (sudo: {sudo})" if sudo and sudo != name else name
