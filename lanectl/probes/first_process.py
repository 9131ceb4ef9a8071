"""The first process of a container, held by a pidfd: its end is seen at once, and the engine is not needed to kill it."""

from __future__ import annotations

import os
import signal

from lanectl.store import process
from lanectl.store.process import ProcessId

STOPPED = ("T", "t")  # proc(5): stopped by a signal, or by a debugger


class FirstProcess:
    """A living process. `fd` becomes readable when it ends (pidfd_open(2)); the kernel never gives it to another."""

    def __init__(self, identity: ProcessId, fd: int) -> None:
        self.identity = identity
        self.fd = fd

    @classmethod
    def hold(cls, identity: ProcessId) -> FirstProcess | None:
        """Given a process, hold it; None when it is gone, or where pidfds cannot be had (a kernel before 5.3)."""
        try:
            fd = os.pidfd_open(identity.pid)
        except OSError:
            return None
        if process.alive(identity):  # asked with the pidfd open: the pid cannot change hands any more
            return cls(identity, fd)
        os.close(fd)
        return None

    @property
    def killable(self) -> bool:
        """True when this process may be signalled by us: asked with signal 0, which does nothing."""
        return self._send(0)

    @property
    def stopped(self) -> bool:
        """True while it is stopped by a signal."""
        found = process.stat(self.identity.pid)
        return found is not None and found.start_time == self.identity.start_time and found.state in STOPPED

    def kill(self) -> bool:
        """Send SIGKILL; return whether it was sent."""
        return self._send(signal.SIGKILL)

    def close(self) -> None:
        os.close(self.fd)

    def _send(self, number: int) -> bool:
        try:
            signal.pidfd_send_signal(self.fd, number)
        except OSError:  # gone, or somebody else's
            return False
        return True
