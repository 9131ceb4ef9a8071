"""A person at a terminal: a real pseudo-terminal, with what was typed and what was shown."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

READ_SIZE = 65536
LOOK_EVERY_S = 0.1
# The first terminal that the leader of a new session opens becomes its controlling terminal (setsid(2)).
TAKE_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Terminal:
    """`with Terminal(root, "swap", "cand") as terminal:` runs `lanectl` on a terminal of its own."""

    def __init__(self, root: Path, *words: str) -> None:
        self._argv = [sys.executable, "-c", TAKE_TERMINAL, "-m", "lanectl", "--site", str(root), *words]
        self.shown = ""
        self._fd = -1

    def __enter__(self) -> Self:
        self._fd, theirs = pty.openpty()
        self.process = subprocess.Popen(
            self._argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
            start_new_session=True,
        )
        os.close(theirs)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def sees(self, text: str, within_s: float = 60.0) -> None:
        """Wait until this text was shown."""
        deadline = time.monotonic() + within_s
        while text not in self.shown:
            if time.monotonic() > deadline:
                raise AssertionError(f"not shown within {within_s:.0f} s: {text!r}; shown:\n{self.shown}")
            if not self._read() and text not in self.shown:
                raise AssertionError(f"ended without {text!r}; shown:\n{self.shown}")

    def types(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def close(self) -> None:
        """Close the terminal, as a window is closed or a line is lost."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def ended(self, within_s: float = 60.0) -> int:
        """Read what is still shown, wait for the end, return the exit code."""
        deadline = time.monotonic() + within_s
        while self._fd >= 0 and time.monotonic() < deadline and self._read():
            pass
        return self.process.wait(within_s)

    def _read(self) -> bool:
        """Read what was shown; False at the end."""
        if not select.select([self._fd], [], [], LOOK_EVERY_S)[0]:
            return self.process.poll() is None
        data = b""
        with contextlib.suppress(OSError):  # EIO: nobody holds the other side any more
            data = os.read(self._fd, READ_SIZE)
        self.shown += data.decode(errors="replace")
        return bool(data)
