"""The small parent of one local service: it starts it, keeps its log, and knows how it ended after lanectl is gone.

Run by path with `python -I -S`, so only the standard library and nothing of lanectl: `shim.py DIRECTORY CONTROL LOCK`.
CONTROL is a socket: the plan (JSON) comes in up to its end, one answer goes out once the service was exec'ed, or not.
LOCK is the container's lock, taken by who started us: it is held as long as this process lives, and says so to all.

The engine reads what is written here with the same functions (`read_record`, `segments`).
"""

from __future__ import annotations

import binascii
import ctypes
import json
import os
import re
import select
import signal
import sys
import time

TYPE_CHECKING = False  # typing costs a tenth of this program's start
if TYPE_CHECKING:
    from typing import Any

# prctl(2) options (source: linux/prctl.h).
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# The run record: two files, written in turn and in place, each with a checksum. So a reader always finds a whole one,
# and the exit code can be written on a full disk, because the blocks are there from the creation on.
SLOTS = ("run.0", "run.1")
SLOT_SIZE = 4096
MAX_ERROR = 512  # bytes of an error that are kept; far below SLOT_SIZE, even if JSON makes six of each

SEGMENT = re.compile(r"log\.(\d{6,})\.(\d{6,})")
READ_SIZE = 64 * 1024
PIPE_READS = 32  # a pipe holds 16 pages (pipe(7)): 1 MiB where a page is 64 KiB; twice that

# From the kill of a tree to its end: looks every 1 ms at first, since most are gone at once, then up to 50 ms apart.
FIRST_LOOK_S = 0.001
LAST_LOOK_S = 0.05

# The service's words for "cannot be run" are a shell's: 126 not executable, 127 not found.
NOT_EXECUTABLE, NOT_FOUND = 126, 127


def read_record(directory: str) -> dict[str, Any] | None:
    """Given a container's directory, return its newest whole run record, None when neither is whole."""
    whole = [record for slot in SLOTS if (record := _read_slot(f"{directory}/{slot}")) is not None]
    return max(whole, key=lambda record: record["seq"], default=None)


def write_record(directory: str, record: dict[str, Any]) -> None:
    """Write the next run record. One writer at a time: who holds the container's lock. Raise OSError."""
    last = read_record(directory)
    seq = 0 if last is None else last["seq"] + 1
    text = json.dumps(record | {"seq": seq}).encode()
    data = (b"%08x " % binascii.crc32(text) + text).ljust(SLOT_SIZE - 1) + b"\n"
    fd = os.open(f"{directory}/{SLOTS[seq % 2]}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, data, 0)
    finally:
        os.close(fd)


def _read_slot(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs a third of this program's start
            data = file.read(SLOT_SIZE)
        checksum, _, text = data.rstrip().partition(b" ")
        if int(checksum, 16) != binascii.crc32(text):
            return None
        record: dict[str, Any] = json.loads(text)
    except (OSError, ValueError):
        return None
    return record


def segments(directory: str) -> list[tuple[int, int]]:
    """Return the (run, number) of the container's log files, oldest first."""
    found = (SEGMENT.fullmatch(name) for name in os.listdir(directory))  # noqa: PTH208
    return sorted((int(match[1]), int(match[2])) for match in found if match)


def segment_path(directory: str, segment: tuple[int, int]) -> str:
    return f"{directory}/log.{segment[0]:06}.{segment[1]:06}"


class Log:
    """The bounded log of one run: at most `max_files` files of `max_size` bytes, earlier runs included.

    A write never raises and never waits: what does not fit on a full disk is dropped, counted, and noted in the log
    as soon as there is room again.
    """

    def __init__(self, directory: str, run: int, max_size: int, max_files: int) -> None:
        self._directory = directory
        self._segment = (run, 0)
        self._max_size = max_size
        self._max_files = max_files
        self._fd = -1
        self._size = 0
        self._lost = 0
        self.dropped = 0  # bytes of this run

    def write(self, data: bytes) -> None:
        note = b"\n[lanectl: %d bytes of the log were dropped: the disk was full]\n" % self._lost if self._lost else b""
        try:
            self._write_all(note)
        except OSError:
            self._drop(len(data))
            return
        self._lost = 0
        left = memoryview(data)
        try:
            while left:
                left = left[self._write_some(left) :]
        except OSError:
            self._drop(len(left))

    def _drop(self, size: int) -> None:
        self._lost += size
        self.dropped += size

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[self._write_some(data) :]

    def _write_some(self, data: bytes | memoryview) -> int:
        if self._fd < 0 or self._size >= self._max_size:
            self._rotate()
        count = os.write(self._fd, data[: self._max_size - self._size])
        self._size += count
        return count

    def _rotate(self) -> None:
        old = segments(self._directory)
        for segment in old[: max(0, len(old) - self._max_files + 1)]:
            os.unlink(segment_path(self._directory, segment))  # noqa: PTH108
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        following = (self._segment[0], self._segment[1] + 1)
        path = segment_path(self._directory, following)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._segment, self._size = following, 0


def process_start(pid: int) -> tuple[int, int, str] | None:
    """Given a pid, return its parent, start time and state (proc(5): fields 4, 22 and 3), None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[1]), int(fields[19]), fields[0].decode()


def descendants(ancestor: int) -> dict[int, int]:
    """Given a pid, return the pids of everything below it with their start times, zombies left out."""
    children: dict[int, list[int]] = {}
    started: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (found := process_start(int(name))) is not None:
            parent, start, state = found
            children.setdefault(parent, []).append(int(name))
            if state not in "ZXx":
                started[int(name)] = start
    below: list[int] = []
    queue = [ancestor]
    while queue:
        following = children.get(queue.pop(), [])
        below += following
        queue += following
    return {pid: started[pid] for pid in below if pid in started}


def kill_exactly(pid: int, start: int) -> None:
    """SIGKILL the process that has this pid and start time; gone is fine."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel before 5.3
        fd = -1
    try:
        found = process_start(pid)
        if found is None or found[1] != start:
            return
        if fd >= 0:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # gone, or a program that runs as somebody else: the caller sees that it is still there
    finally:
        if fd >= 0:
            os.close(fd)


class Shim:
    """One run of one service, from its start to the record of its end."""

    def __init__(self, directory: str, plan: dict[str, Any]) -> None:
        self.directory = directory
        self.plan = plan
        self.log = Log(directory, plan["run"], plan["max_size"], plan["max_files"])
        self.libc = ctypes.CDLL(None)
        self.libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3)
        self.woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Whoever stops a lane signals the service; we stay to see how it ends.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        self.pid = 0
        self.output = -1
        self.status: int | None = None
        self.record: dict[str, Any] = {
            "run": plan["run"],
            "boot_id": plan["boot_id"],
            "shim": [os.getpid(), (process_start(os.getpid()) or (0, 0))[1]],
            "started_at": now(),
            "finished_at": "",
            "exit_code": None,
            "error": "",
        }

    def start(self) -> str:
        """Start the service; return why it could not be, empty when it runs."""
        self.output, output = os.pipe()
        failed, failing = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(parent, output, failing)
        os.close(output)
        os.close(failing)
        os.set_blocking(self.output, False)
        problem = os.read(failed, MAX_ERROR)  # ends with the exec, which closes the other side
        os.close(failed)
        if problem:
            status = os.waitpid(self.pid, 0)[1]
            ended = {"exit_code": os.waitstatus_to_exitcode(status), "finished_at": now()}
            self.record |= {"error": problem.decode(errors="replace"), **ended}
        else:
            self.record["main"] = [self.pid, (process_start(self.pid) or (0, 0))[1]]
        return str(self.record["error"])

    def _become(self, parent: int, output: int, failing: int) -> None:
        """In the child: become the service. It dies with us (a set-user-id program excepted) and leads its session."""
        trying, code = f"enter {self.plan['cwd']}", NOT_FOUND
        try:
            os.setsid()
            self.libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *[ctypes.c_ulong(0)] * 3)
            if os.getppid() != parent:  # it died before it was watched
                os._exit(NOT_FOUND)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.umask(0o022)
            os.chdir(self.plan["cwd"])
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            trying = f"run {self.plan['argv'][0]}"
            os.execvpe(self.plan["argv"][0], self.plan["argv"], self.plan["env"])
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            os.write(failing, f"cannot {trying}: {error.strerror}".encode(errors="replace")[:MAX_ERROR])
        finally:
            os._exit(code)

    def watch(self) -> None:
        """Keep the log and reap everything until the service itself ends."""
        poll = select.poll()
        poll.register(self.output, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        while self.status is None:
            ready = [fd for fd, _ in poll.poll()]
            if self.output in ready and self._pump() == b"":
                poll.unregister(self.output)  # every writer closed it; the service may live on
            if self.woken in ready:
                os.read(self.woken, READ_SIZE)
                self._reap()

    def finish(self) -> None:
        """Kill what the service left behind, then write down how it ended."""
        self.record["finished_at"] = now()
        pause = FIRST_LOOK_S
        while self._reap():
            for pid, start in descendants(os.getpid()).items():
                kill_exactly(pid, start)
            self._drain()
            time.sleep(pause)
            pause = min(2 * pause, LAST_LOOK_S)
        self._drain()
        code = os.waitstatus_to_exitcode(self.status or 0)
        self.record["exit_code"] = 128 - code if code < 0 else code  # as Docker shows a signal
        self.save("exited")

    def save(self, state: str) -> None:
        write_record(self.directory, self.record | {"state": state, "log_dropped": self.log.dropped})

    def _reap(self) -> bool:
        """Reap every ended child; return whether any child is left. Ours are all, orphans too (subreaper)."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self.pid:
                    self.status = status
        except ChildProcessError:
            return False

    def _pump(self) -> bytes | None:
        """Move some output to the log and return it: None when there is none now, empty when there will be none."""
        try:
            data = os.read(self.output, READ_SIZE)
        except BlockingIOError:
            return None
        self.log.write(data)
        return data

    def _drain(self) -> None:
        """Move what the pipe holds to the log, and no more: somebody else may write to it for ever."""
        for _ in range(PIPE_READS):
            if not self._pump():
                return


def now() -> str:
    """Return the wall time in UTC, RFC 3339 with milliseconds, for people."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds // 1_000_000:03}Z"


def main() -> None:
    directory, control_fd, lock_fd = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.set_inheritable(lock_fd, False)
    os.set_inheritable(control_fd, False)
    plan = b""
    while received := os.read(control_fd, READ_SIZE):
        plan += received
    shim = Shim(directory, json.loads(plan))
    problem = shim.start()
    shim.save("failed" if problem else "running")
    answer = {"error": problem} if problem else {"pid": shim.pid}
    try:
        os.write(control_fd, json.dumps(answer).encode())
    except OSError:
        pass  # who asked is gone; the service is not
    os.close(control_fd)
    if not problem:
        shim.watch()
        shim.finish()
    os._exit(0)  # at once: the lock that we hold keeps the container from being started again


if __name__ == "__main__":
    main()
