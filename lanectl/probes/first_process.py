"""The first process of a container, held by a pidfd: its end is seen at once, no engine is needed to kill it."""

from __future__ import annotations

import os
import select
import signal

from lanectl.store import process
from lanectl.store.process import ProcessId


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

    def ended_within(self, seconds: float) -> bool:
        """Wait for its end at most so long; return whether it has ended."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

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
