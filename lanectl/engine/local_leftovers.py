"""What a killed supervisor left behind: processes of a container that nobody is the parent of any more."""

from __future__ import annotations

import os
from pathlib import Path

from lanectl.engine.local_body import MARKER
from lanectl.store.process import ProcessId, Stat, boot_id, every_process


def leftovers(container_id: str, main: ProcessId | None) -> tuple[Stat, ...]:
    """Given a container and its main process that ended (None: not known), return its other processes that live.

    They carry the container's mark in their environment, or are in its session. Both are asked because a program may
    overwrite its environment (setproctitle does), and may leave its session.
    """
    if main is not None and main.boot_id != boot_id():
        return ()
    everything = every_process()
    session, since = (None, 0) if main is None else (main.pid, main.start_time)
    # A session's number is free again once its last member is gone: a leader of another start time leads another one.
    if any(found.pid == session and found.start_time != since for found in everything):
        session = None
    mark = f"{MARKER}={container_id}".encode()
    return tuple(
        found
        for found in everything
        if not found.ended
        and found.start_time >= since
        and ((found.session == session and _ours(found.pid)) or mark in _environ(found.pid))
    )


def _ours(pid: int) -> bool:
    try:
        return Path("/proc", str(pid)).stat().st_uid == os.geteuid()
    except OSError:
        return False


def _environ(pid: int) -> list[bytes]:
    try:
        return Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return []
