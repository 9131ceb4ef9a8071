"""Whether a watchdog lives and looks, from its processes: where its files are lost, damaged, or cannot be written."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from lanectl.actions.watch_post import is_job
from lanectl.core.watch import Known
from lanectl.errors import LaneError
from lanectl.store.black_box import BlackBox
from lanectl.store.process import ProcessId, alive, command_words, identify
from lanectl.store.watch import Status, WatchFiles


@dataclass(frozen=True, slots=True)
class Life:
    """A watchdog that lives. `processes`: those of its watcher and supervisor that do.

    `looked_at`: monotonic seconds of its last look, None before the first. `known`: what was known then. `at_last`: it
    has begun a trip, or ended, and looks no more. All of it is read from its memory; where that may not be read `seen`
    is False, and `looked_at` is what its status says.
    """

    processes: tuple[ProcessId, ...]
    looked_at: float | None
    known: Known | None = None
    at_last: bool = False
    seen: bool = True


def lives(status: Status) -> bool:
    """True while one of its processes lives: either starts the other again."""
    return bool(_named(status))


def life_of(files: WatchFiles) -> Life | None:
    """Return the life of the watchdog of these files, whatever state they are in; None when none lives.

    Of several the one that looked last. All processes of the machine are looked at only where its status names none.
    """
    status = None
    with suppress(LaneError):
        status = files.status()
    processes = _named(status) or _found(files)
    if not processes:
        return None
    said = Life(processes, status.looked_at if status is not None else None, seen=False)
    boxes = [box for one in processes if (box := BlackBox.of(one.pid, files.folder.name)) is not None]
    try:
        lifes = [_read(processes, box) for box in boxes]
    finally:
        for box in boxes:
            box.close()
    return max(lifes, key=lambda life: life.looked_at or 0.0, default=said)


def _named(status: Status | None) -> tuple[ProcessId, ...]:
    processes = (status.watcher, status.supervisor) if status is not None else ()
    return tuple(one for one in processes if one is not None and alive(one))


def _found(files: WatchFiles) -> tuple[ProcessId, ...]:
    pids = [pid for pid, words in command_words() if is_job(words, files)]
    return tuple(found for pid in pids if (found := identify(pid)) is not None and alive(found))


def _read(processes: tuple[ProcessId, ...], box: BlackBox) -> Life:
    try:
        noted = box.noted() is not None
    except ValueError:
        noted = True  # it is being written
    look = box.last_look()
    at, known = look if look is not None else (None, None)
    return Life(processes, at, known, noted)
