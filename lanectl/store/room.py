"""Whether a directory can be written, told without writing: `status` changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from lanectl.store.files import explained

KIB = 1024


def unwritable(directory: Path, needed: int) -> str:
    """Given a directory and how many bytes must be free there, return why nothing can be recorded in it, "" when it
    can. One that is not there yet is judged by where it would be. Raise `StoreError` when it cannot be looked at.

    Source: statvfs(3). access(2) alone says yes to root on what only root may write, full or not.
    """
    with explained(directory, "look at"):
        where = next(one for one in (directory, *directory.parents) if one.exists())
        disk = os.statvfs(where)
    if disk.f_flag & os.ST_RDONLY:
        return f"{where} is on a file system that is mounted read-only"
    if not os.access(where, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return f"{where} may not be written by this user"
    root = os.geteuid() == 0  # to whom the blocks and inodes belong that are kept from the others
    free = disk.f_frsize * (disk.f_bfree if root else disk.f_bavail)
    if disk.f_blocks and free < needed:  # no blocks at all: a file system without a size of its own
        return f"{where} has {free // KIB} KiB free, a swap's records need {needed // KIB}"
    if disk.f_files and not (disk.f_ffree if root else disk.f_favail):
        return f"{where} has no inode free: no file can be made"
    return ""
