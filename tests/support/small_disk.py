"""A small file system of its own, to fill it, or to make it read-only. Needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE = 64 * 1024  # the largest page in use: a tmpfs counts whole pages


@contextmanager
def small_disk(where: Path, pages: int) -> Iterator[Path | None]:
    """Mount a file system of some pages of 64 KiB; give its path, None where this user may not mount."""
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={pages * PAGE}", "tmpfs", str(where)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        yield None
        return
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def fill(disk: Path) -> Path:
    """Fill the disk to the last byte; return the file that does it."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (PAGE, 1024, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler
