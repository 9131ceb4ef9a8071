"""The one way to start a job that outlives lanectl: the guard, the local engine's supervisors, a detached swap.

Where systemd runs, a job gets a scope of its own (`systemd-run --scope`): a new session alone does not survive
`KillUserProcesses=yes`, nor the end of the service that started it. A user's scopes end with the user's last
session unless `loginctl enable-linger` is set. Elsewhere a job gets a new session.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from lanectl import exec_job
from lanectl.errors import ExitCode, LaneError
from lanectl.store.files import PRIVATE_FILE, explained, open_regular, write_all

SYSTEMD_RUNS = Path("/run/systemd/system")  # sd_booted(3): this directory exists where systemd is the init system
# systemd answers in some 10 ms; a busy machine may need seconds. Longer than this, the bus hangs.
START_WITHIN_S = 20.0
READ_SIZE = 4096


class DetachedJobs:
    """Starts detached jobs. `systemd_run` is the program to use, None for new sessions, by default what fits here."""

    def __init__(self, systemd_run: str | None = "auto") -> None:
        found = shutil.which("systemd-run") if SYSTEMD_RUNS.is_dir() else None
        self.systemd_run = found if systemd_run == "auto" else systemd_run

    def start(self, argv: Sequence[str], *, name: str, keep_fds: Sequence[int], log_path: str) -> int:
        """Given a command, start it outside our session and scope; return its pid once it really runs.

        It keeps the descriptors `keep_fds` under the same numbers and nothing else of ours; its input is empty, its
        output is appended to `log_path` (0600), its working directory is `/`. Raise `LaneError` when it cannot be
        started, in the system's own words.
        """
        path = Path(log_path)
        with explained(path, "open the log"):
            log = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
        try:
            if self.systemd_run is None:
                return _start_session(argv, keep_fds, log, name).pid
            return _start_scope(self.systemd_run, argv, keep_fds, log, name, path)
        finally:
            os.close(log)


def _start_session(argv: Sequence[str], keep_fds: Sequence[int], log: int, name: str) -> subprocess.Popen[bytes]:
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            pass_fds=tuple(keep_fds),
        )
    except OSError as error:
        raise _not_started(name, f"cannot run {argv[0]}: {error.strerror}") from error
    # Reaped as soon as it ends, so that no zombie of ours looks like a running job.
    threading.Thread(target=process.wait, name=f"reap {name}", daemon=True).start()
    return process


def _start_scope(
    systemd_run: str, argv: Sequence[str], keep_fds: Sequence[int], log: int, name: str, path: Path
) -> int:
    """systemd-run makes a scope around its own process and then becomes the command: the pid stays the same.

    Source: systemd, src/run/run.c, start_transient_scope: it closes no descriptor and ends with an exec.
    """
    manager = [] if os.geteuid() == 0 else ["--user"]
    unit = f"--unit={name}-{os.getpid()}-{time.monotonic_ns()}.scope"
    scope = [systemd_run, *manager, "--scope", "--quiet", "--collect", "--no-ask-password", unit, "--"]
    command = os.memfd_create(name)
    told, tell = os.pipe()
    try:
        write_all(command, exec_job.SEPARATOR.join(map(os.fsencode, argv)))
        helper = [sys.executable, "-I", "-S", exec_job.__file__, str(command), str(tell)]
        process = _start_session([*scope, *helper], [*keep_fds, command, tell], log, name)
        os.close(tell)
        tell = -1
        answer = _read_to_end(told, START_WITHIN_S)
    finally:
        for fd in (command, told, tell):
            if fd >= 0:
                os.close(fd)
    if answer == exec_job.STARTED:
        return process.pid
    if answer is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise _not_started(name, f"systemd-run did not answer within {START_WITHIN_S:.0f} s")
    if answer.startswith(exec_job.STARTED):
        raise _not_started(name, f"cannot run {argv[0]}: {os.strerror(int(answer[len(exec_job.STARTED) :]))}")
    raise _not_started(name, f"systemd-run failed; its words are in {path}")


def _read_to_end(fd: int, within_s: float) -> bytes | None:
    """Given a pipe, return what was written to it once all writers closed it, None when they do not in time."""
    deadline = time.monotonic() + within_s
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    data = b""
    while True:
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0 or not poll.poll(left_ms):
            return None
        chunk = os.read(fd, READ_SIZE)
        if not chunk:
            return data
        data += chunk


def _not_started(name: str, reason: str) -> LaneError:
    hint = None if os.geteuid() == 0 else "without root, detached jobs need a user manager: loginctl enable-linger"
    return LaneError(f"the job {name} could not be started: {reason}", hint, ExitCode.REFUSED)


def unit_enabled(name: str) -> bool | None:
    """Say whether systemd starts this unit at boot; None where systemd does not run (or does not answer)."""
    systemctl = shutil.which("systemctl") if SYSTEMD_RUNS.is_dir() else None
    if systemctl is None:
        return None
    try:
        asked = subprocess.run(
            [systemctl, "is-enabled", "--quiet", name], timeout=START_WITHIN_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.returncode == 0
