"""A guard that only says it is ready: for tests in which nobody dies, or the test itself is what restores."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence


class ReadyGuards:
    """The Jobs port. Remembers what was started; each "guard" says at once that it is ready."""

    def __init__(self) -> None:
        self.started: list[tuple[str, ...]] = []

    def start(self, argv: Sequence[str], *, name: str, keep_fds: Sequence[int], log_path: str) -> int:
        self.started.append(tuple(argv))
        os.write(keep_fds[-1], b"r")
        return os.getpid()


class MortalGuards:
    """The Jobs port. Each "guard" is a process that says that it is ready and does nothing, until a test kills it."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, argv: Sequence[str], *, name: str, keep_fds: Sequence[int], log_path: str) -> int:
        self._started.append(subprocess.Popen(["sleep", "600"]))
        os.write(keep_fds[-1], b"r")
        return self._started[-1].pid

    def kill(self) -> None:
        """Kill every guard, and see each dead."""
        for process in self._started:
            process.kill()
            process.wait()
