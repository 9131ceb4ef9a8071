"""An environment is what an image is to the local engine: a directory, named by the hash of what is in it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from lanectl.errors import EngineError

READ_SIZE = 1024 * 1024
_REFERENCE = re.compile(r"env:(?P<directory>/.*)@sha256:(?P<sha256>[0-9a-f]{64})")
_ID = re.compile(r"sha256:(?P<sha256>[0-9a-f]{64})")


def tree_sha256(path: Path) -> str:
    """Given a directory, return the sha256 (hex) of its content: equal content, equal hash, wherever it lies.

    Hashed are the sorted relative paths of all files and links, each file's sha256, each link's target as text.
    Lengths go before texts, so that no two trees are spelled alike. Left out: modes, times, owners, empty directories
    and compiled Python (`__pycache__`, `*.pyc`), which running a tree makes. Raise `EngineError` when it cannot be read
    or holds anything but directories, files and links.
    """
    digest = hashlib.sha256()
    try:
        for relative, file in sorted(_files(path, "")):
            name = os.fsencode(relative)
            is_link = stat.S_ISLNK(file.lstat().st_mode)
            content = os.fsencode(os.readlink(file)) if is_link else _file_sha256(file)  # noqa: PTH115 - text as it is
            kind = b"link" if is_link else b"file"
            digest.update(b"%s %d %s %d %s\n" % (kind, len(name), name, len(content), content))
    except OSError as error:
        raise EngineError(f"environment {path}: cannot read {error.filename}: {error.strerror}") from error
    return digest.hexdigest()


def parse_reference(ref: str) -> tuple[Path, str] | None:
    """Given `env:/directory@sha256:HEX`, return the directory and HEX; None when it is not of that form."""
    match = _REFERENCE.fullmatch(ref)
    return (Path(match["directory"]), match["sha256"]) if match else None


def parse_id(ref: str) -> str | None:
    """Given `sha256:HEX`, return HEX; None when it is not of that form."""
    match = _ID.fullmatch(ref)
    return match["sha256"] if match else None


def reference(directory: Path) -> str:
    """Given a directory, return the name it has now: `env:/directory@sha256:HEX`, as station.yaml wants it."""
    return f"env:{directory.absolute()}@sha256:{tree_sha256(directory)}"


def _files(directory: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _files(Path(entry.path), f"{prefix}{entry.name}/")
            elif not entry.name.endswith(".pyc"):
                if not (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                    raise EngineError(f"environment: {entry.path} is no file, link or directory")
                yield prefix + entry.name, Path(entry.path)


def _file_sha256(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(READ_SIZE):
            digest.update(data)
    return digest.hexdigest().encode()
