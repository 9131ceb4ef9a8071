"""Two watchdogs of one lane: the elder gives way, as soon as the younger watches as strictly."""

from __future__ import annotations

from lanectl.core.watch import Mode
from lanectl.errors import LaneError
from lanectl.store.process import ProcessId, alive
from lanectl.store.watch import Status, WatchFiles


def succeeded_by(files: WatchFiles, me: Status, mode: Mode) -> ProcessId | None:
    """Given a watcher's own status and mode, return the watcher of a younger watchdog of the same lane; None if none.

    Its owner armed it not knowing of this one. It has written its status over ours, so it looks. Two watchers of one
    supervisor are never two watchdogs: the elder one is dead.
    """
    try:
        other = files.status()
    except LaneError:
        return None
    if other is None or other.ended or other.mode not in (mode, Mode.SERVING):
        return None
    if other.supervisor in (None, me.supervisor) or _age(other.watcher) <= _age(me.watcher):
        return None
    return other.watcher if alive(other.watcher) else None


def _age(process: ProcessId) -> tuple[int, int]:
    return process.start_time, process.pid
