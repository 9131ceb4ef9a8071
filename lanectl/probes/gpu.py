"""The `Gpus` port over a helper process with a deadline: a driver that hangs costs a reading, never lanectl."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from lanectl.ports import GpuProcess, GpuReading

# A reading costs microseconds to milliseconds; loading the driver for the first question takes seconds where no
# persistence daemon keeps it loaded (4 s for one card is usual, a Station has two).
READ_WITHIN_S = 5.0
START_WITHIN_S = 30.0
END_WITHIN_S = 1.0
HELPER = (sys.executable, "-P", str(Path(__file__).with_name("gpu_helper.py")))  # -P: its folder's http.py is not http


class NvmlGpus:
    """Reads NVIDIA GPUs. After an Xid error, a driver error or a time-out the driver is not asked again.

    `argv` runs the helper, `env` is its environment (None: ours).
    """

    def __init__(
        self,
        argv: Sequence[str] = HELPER,
        *,
        env: Mapping[str, str] | None = None,
        read_within_s: float = READ_WITHIN_S,
        start_within_s: float = START_WITHIN_S,
    ) -> None:
        self._argv = tuple(argv)
        self._env = env
        self._read_within_s = read_within_s
        self._start_within_s = start_within_s
        self._helper: subprocess.Popen[bytes] | None = None
        self._blind = ""
        self._lock = threading.Lock()

    def uuids(self) -> tuple[str, ...] | None:
        """Return the UUIDs of the machine's GPUs; None when they cannot be read."""
        found = self._ask({"ask": "uuids"}).get("uuids")
        return tuple(found) if isinstance(found, list) else None

    def read(self, uuid: str) -> GpuReading:
        """Return one reading; `error` says why it tells nothing."""
        answer = self._ask({"ask": "read", "uuid": uuid})
        listed = answer.get("processes")
        processes = None if listed is None else tuple(GpuProcess(p["pid"], p["name"], p["used_mib"]) for p in listed)
        return GpuReading(uuid, answer.get("used_mib"), processes, answer.get("error"))

    def close(self) -> None:
        """End the helper. It would also end by itself with us: its stdin is ours."""
        with self._lock:
            helper, self._helper = self._helper, None
            if helper is None:
                return
            _pipe(helper.stdin).close()
            try:
                helper.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                helper.kill()
            _pipe(helper.stdout).close()

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._blind:
                return {"error": self._blind}
            try:
                answer = self._exchange(question)
            except TimeoutError as error:
                self._give_up(str(error))
                return {"error": self._blind}
            except (OSError, ValueError) as error:
                self._give_up(f"the GPU helper failed: {error}")
                return {"error": self._blind}
            if answer.get("blind"):
                self._give_up(str(answer.get("error")))
            return answer

    def _exchange(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the helper. Raise TimeoutError, OSError (it ended) or ValueError (it said something else than JSON)."""
        within_s = self._read_within_s
        if self._helper is None:
            within_s = self._start_within_s
            self._helper = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._env,
                start_new_session=True,  # a terminal's Ctrl-C is for lanectl to answer
                bufsize=0,
            )
        _pipe(self._helper.stdin).write(json.dumps(question).encode() + b"\n")
        answer = json.loads(_read_line(_pipe(self._helper.stdout), within_s))
        if not isinstance(answer, dict):
            raise ValueError("not a JSON object")
        return answer

    def _give_up(self, why: str) -> None:
        """Never ask again. A helper stuck in the driver may not even die; it is not waited for."""
        self._blind = why
        if self._helper is not None:
            self._helper.kill()
            self._helper.poll()


class NoGpus:
    """A machine without GPUs that can be read."""

    def __init__(self, why: str = "no GPU readings on this machine") -> None:
        self._why = why

    def uuids(self) -> tuple[str, ...] | None:
        return None

    def read(self, uuid: str) -> GpuReading:
        return GpuReading(uuid, None, None, self._why)


def _read_line(pipe: IO[bytes], within_s: float) -> bytes:
    """Return the next line of the helper. Raise TimeoutError, OSError at its end."""
    deadline = time.monotonic() + within_s
    poller = select.poll()  # not select(): a process may have more than 1024 descriptors
    poller.register(pipe, select.POLLIN)
    line = b""
    while not line.endswith(b"\n"):
        if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError(f"the GPU driver gave no answer within {within_s:g} s; it is not asked again")
        part = os.read(pipe.fileno(), 65536)
        if not part:
            raise OSError("it ended without an answer")
        line += part
    return line


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("the helper has no pipe")  # cannot happen: both were asked for
    return pipe
