"""State files: replaced atomically, appended durably, never through a symbolic link.

Every failure of the file system leaves as a `StoreError` that names the path, the reason and what to do.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lanectl.errors import ExitCode, LaneError

PRIVATE_FILE = 0o600
PRIVATE_DIR = 0o700
READ_SIZE = 64 * 1024
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

HINTS = {
    errno.ENOSPC: "free some space on that file system",
    errno.EDQUOT: "free some space: the user's quota is used up",
    errno.EFBIG: "the file may not grow: look at `ulimit -f`",
    errno.EACCES: "run lanectl as the user who owns the site's state",
    errno.EPERM: "run lanectl as the user who owns the site's state",
    errno.EROFS: "the file system is mounted read-only: look at `dmesg` and `mount`",
    errno.EIO: "the disk fails: look at `dmesg`",
    errno.ELOOP: "a symbolic link stands where a state file belongs: look where it points, then remove it",
    errno.ENOENT: "a directory of the path is missing",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EISDIR: "a directory stands where a file belongs",
    errno.EMFILE: "too many files are open: look at `ulimit -n`",
}


class StoreError(LaneError):
    """A state file could not be read or written; `errno` is the system's number, None for damaged content."""

    exit_code = ExitCode.UNREACHABLE

    def __init__(self, message: str, hint: str | None = None, number: int | None = None) -> None:
        super().__init__(message, hint)
        self.errno = number


@contextmanager
def explained(path: Path, doing: str) -> Iterator[None]:
    """Turn any OSError inside into a `StoreError` that says `cannot DOING PATH: reason`."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StoreError(f"cannot {doing} {path}: {reason}", HINTS.get(error.errno or 0), error.errno) from error


def open_regular(path: Path, flags: int, mode: int = PRIVATE_FILE) -> int:
    """Open a regular file, close-on-exec, never through a link. Raise OSError; the caller explains it.

    O_NONBLOCK has no effect on regular files and keeps a FIFO in the way from blocking us.
    """
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def sync_dir(path: Path) -> None:
    """Make the directory's entries durable (a rename or a new file is not, until its directory is)."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte. Raise OSError; some bytes may have been written then."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def ensure_dir(path: Path, mode: int = PRIVATE_DIR) -> None:
    """Given a path, make it and its parents directories of this mode where missing. An existing one stays as it is."""
    with explained(path, "make the directory"):
        missing = []
        current = path
        while not current.is_dir():
            missing.append(current)
            current = current.parent
        for directory in reversed(missing):
            try:
                directory.mkdir(mode=mode)
            except FileExistsError:
                if not directory.is_dir():
                    raise
            sync_dir(directory.parent)


def write_atomic(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Replace the file's content: whoever reads sees the old or the new content, whole, also after a power cut.

    The old content stays when anything fails. Raise `StoreError`.
    """
    with explained(path, "write"):
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        fd = open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            try:
                os.fchmod(fd, mode)
                write_all(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_dir(path.parent)


def write_json(path: Path, value: Mapping[str, Any], mode: int = PRIVATE_FILE) -> None:
    """Replace the file with this JSON object, atomically. Raise `StoreError`."""
    write_atomic(path, json.dumps(value, indent=2, sort_keys=True).encode() + b"\n", mode)


def read_bytes(path: Path) -> bytes | None:
    """Return the file's content, None when there is no file. Raise `StoreError`."""
    with explained(path, "read"):
        try:
            fd = open_regular(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read()


def read_text(path: Path) -> str:
    """Return the file's text, "" when there is no file; what is no UTF-8 is replaced. Raise `StoreError`."""
    return (read_bytes(path) or b"").decode(errors="replace")


def exists(path: Path) -> bool:
    """True when something is there. Raise `StoreError` when that cannot be told, as by another user."""
    with explained(path, "look at"):
        return path.exists()


def names(path: Path) -> tuple[str, ...]:
    """Return the names in a directory, sorted; () when there is no directory. Raise `StoreError`."""
    with explained(path, "list"):
        try:
            return tuple(sorted(entry.name for entry in path.iterdir()))
        except FileNotFoundError:
            return ()


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the file's JSON object, None when there is no file.

    Raise `StoreError` when it cannot be read or holds anything else: a damaged file is never taken for an empty one.
    """
    data = read_bytes(path)
    if data is None:
        return None
    try:
        value = json.loads(data)
    except ValueError as error:
        raise StoreError(f"{path} is damaged: {error}", "look at it, and restore it from a copy") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path} is damaged: it holds no JSON object", "look at it, and restore it from a copy")
    return value


def reserve(path: Path, size: int) -> None:
    """Keep `size` bytes of disk for later: a file of that size with its blocks allocated. Raise `StoreError`."""
    with explained(path, "reserve space with"):
        fd = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            os.posix_fallocate(fd, 0, size)
            os.fsync(fd)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)


def release(path: Path) -> bool:
    """Give reserved space back; False when nothing was reserved."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


class AppendLog:
    """A file that grows by whole lines, each durable once `append` returned. One writer at a time (the caller's lock).

    A torn last line (its writer died before the append returned) is cut off when the log is opened; `torn` holds it.
    """

    def __init__(self, path: Path, reserve_path: Path | None = None) -> None:
        """Open or make the file. `reserve_path` names space kept with `reserve`, given back when the disk is full.

        Raise `StoreError`.
        """
        self.path = path
        self.torn = b""
        self._reserve = reserve_path
        self._roll_back_to: int | None = None
        with explained(path, "open"):
            self._fd = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                self._cut_torn_line()
                sync_dir(path.parent)
            except BaseException:
                os.close(self._fd)
                raise

    def append(self, line: bytes) -> None:
        """Append one line (without its line end) and make it durable.

        Raise `StoreError`; the file then ends where it ended before, so that the next line cannot fuse with a half one.
        """
        if b"\n" in line:
            raise ValueError("a line has no line end inside")
        with explained(self.path, "append to"):
            try:
                self._append(line + b"\n")
            except OSError as error:
                if error.errno not in NO_SPACE or self._reserve is None or not release(self._reserve):
                    raise
                self._append(line + b"\n")

    def close(self) -> None:
        """Close the file; closing again is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> AppendLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, data: bytes) -> None:
        self._roll_back()
        size = os.fstat(self._fd).st_size
        try:
            write_all(self._fd, data)
            os.fsync(self._fd)
        except OSError:
            self._roll_back_to = size
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        """Cut off what a failed append left. When even that fails, the next append tries it again first."""
        if self._roll_back_to is not None:
            os.ftruncate(self._fd, self._roll_back_to)
            self._roll_back_to = None

    def _cut_torn_line(self) -> None:
        end = os.fstat(self._fd).st_size
        tail = b""
        position = end
        while position > 0 and b"\n" not in tail:
            start = max(0, position - READ_SIZE)
            tail = os.pread(self._fd, position - start, start) + tail
            position = start
        self.torn = tail[tail.rfind(b"\n") + 1 :]
        if self.torn:
            os.ftruncate(self._fd, end - len(self.torn))
            os.fsync(self._fd)
