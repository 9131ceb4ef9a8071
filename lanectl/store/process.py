"""Which process is meant: a pid alone is reused, a pid with its start time and the boot it belongs to is not."""

from __future__ import annotations

import os
import signal as signals
from dataclasses import dataclass
from pathlib import Path

from lanectl.errors import LaneError

PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"

# Fields of /proc/PID/stat after the command's closing parenthesis (source: proc(5)): field 3 is the state, 4 the
# parent, 6 the session, 22 the start time in clock ticks since boot.
STATE, PARENT, SESSION, START_TIME = 0, 1, 3, 19
ENDED_STATES = ("Z", "X", "x")  # a zombie has ended: only its exit code is left


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for all time: `start_time` in clock ticks since boot, `boot_id` of the boot it was started in."""

    pid: int
    start_time: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat says: `state` is one letter (R S D T Z X …), `start_time` in clock ticks since boot."""

    pid: int
    state: str
    parent: int
    session: int
    start_time: int

    @property
    def ended(self) -> bool:
        return self.state in ENDED_STATES


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return BOOT_ID.read_text(encoding="ascii").strip()


def stat(pid: int) -> Stat | None:
    """Given a pid, return what the kernel says about it, None when there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command is in parentheses and may hold any character, a parenthesis too: the last one ends it.
    fields = text[text.rindex(")") + 1 :].split()
    return Stat(pid, fields[STATE], int(fields[PARENT]), int(fields[SESSION]), int(fields[START_TIME]))


def every_process() -> tuple[Stat, ...]:
    """Return all processes that /proc shows, zombies too."""
    pids = (int(name) for name in os.listdir(PROC) if name.isdigit())  # noqa: PTH208 - names only, no stat of each
    return tuple(found for pid in pids if (found := stat(pid)) is not None)


def command_lines() -> tuple[tuple[int, str], ...]:
    """Return the pid and command line of every process that has one, its words joined by blanks."""
    return tuple((pid, " ".join(words)) for pid, words in command_words())


def command_words() -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return the pid and the command's words of every process that has any (source: proc(5), /proc/PID/cmdline)."""
    found = []
    for name in os.listdir(PROC):  # noqa: PTH208 - names only, no stat of each
        if name.isdigit():
            try:
                line = (PROC / name / "cmdline").read_bytes()
            except OSError:
                continue  # it ended meanwhile
            words = line.rstrip(b"\0").decode(errors="replace").split("\0")
            found.append((int(name), tuple(words)))
    return tuple(found)


def identify(pid: int) -> ProcessId | None:
    """Given a pid, return who has it now, None when nobody has."""
    found = stat(pid)
    return None if found is None else ProcessId(pid, found.start_time, boot_id())


def this_process() -> ProcessId:
    """Return the calling process."""
    me = identify(os.getpid())
    if me is None:
        raise LaneError("cannot read /proc/self/stat", "lanectl needs a mounted /proc")
    return me


def alive(process: ProcessId) -> bool:
    """True when this very process still runs; a zombie, another process with its pid and a past boot do not."""
    found = stat(process.pid)
    return (
        found is not None
        and not found.ended
        and found.start_time == process.start_time
        and boot_id() == process.boot_id
    )


def signal(process: ProcessId, number: int) -> bool:
    """Send the signal to this very process; return False when it is gone. Raise `LaneError` when it may not be sent.

    The pidfd is opened before the identity is checked, so that the pid cannot change hands in between.
    """
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel before 5.3, or a sandbox without the call
        return _signal_by_pid(process, number)
    try:
        if not alive(process):
            return False
        signals.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        raise _forbidden(process, number) from error
    finally:
        os.close(fd)
    return True


def _signal_by_pid(process: ProcessId, number: int) -> bool:
    if not alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        raise _forbidden(process, number) from error
    return True


def _forbidden(process: ProcessId, number: int) -> LaneError:
    name = signals.Signals(number).name
    return LaneError(f"may not send {name} to process {process.pid}", "run lanectl as the user who started the lane")
