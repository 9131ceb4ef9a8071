"""Fault switches: ways to misbehave, each off unless asked for, in any combination.

`--fault KIND[=VALUE]`, or the environment variable REFERENCE_FAULTS with several separated by spaces. This module
has the list, and the faults of booting, stepping and ending; those of HTTP answers and of event streams have modules of
their own.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

from lanectl.reference.bootlog import Log

VARIABLE = "REFERENCE_FAULTS"

KINDS = {
    "boot-delay": "S: wait S seconds before the port opens (10)",
    "loading": "S: open the port at once, but answer /health with 503 for S seconds (10)",
    "exit": "CODE[:LINES]: end with CODE after LINES lines of the boot log (1:4)",
    "traceback": "with exit: log a traceback and 'RuntimeError: Engine core initialization failed.' first",
    "half-lines": "S: write every log line in pieces, S seconds apart, cut inside characters too (0.01)",
    "hang": "N: after N requests nothing is generated any more; /health stays 200 (0)",
    "step-delay": "S: sleep S seconds before every step (0.01)",
    "ignore-sigterm": "SIGTERM does nothing",
    "hold-port": "S: a child process keeps the listening socket for S seconds after the server is gone (10)",
    "answer": "CODE[:PREFIX]: answer every path that begins with PREFIX with CODE (301:/)",
    "wrong-model": "NAME: /v1/models lists NAME (another-model)",
    "reject": "FIELD: answer a body that has FIELD with 400, naming it (return_token_ids)",
    "die": "N: the process kills itself after the Nth chunk of a stream (3)",
    "error-at": "N: an error object and [DONE] after the Nth chunk of a stream (3)",
    "cut": "N: the connection ends after the Nth chunk of a stream, without [DONE] (3)",
    "no-usage": "streams without the usage chunk",
    "wrong-usage": "N: completion_tokens in the usage chunk is off by N (1)",
    "early-role": "a chat's role chunk goes out at once, long before the first token",
    "no-role": "chat streams without the role chunk",
    "merge": "N: N tokens in a chunk (4)",
    "crlf": "events end with CRLF CRLF",
    "no-space": "`data:` without a space",
    "comments": "a keep-alive comment before every event",
    "split-writes": "every event in several writes, cut inside characters too",
    "u2028": "a U+2028, unescaped, at the end of every piece of text",
    "reasoning": "text goes out as `reasoning` instead of `content`",
    "old-reasoning": "text goes out as `reasoning_content` instead of `content`",
}

_PIECES = 3  # writes for one line or event when it is cut up


class Faults:
    """Which faults are on, with their values."""

    def __init__(self, wanted: dict[str, str]) -> None:
        self._wanted = wanted

    @classmethod
    def read(cls, words: list[str]) -> Faults:
        """Given KIND[=VALUE] words, return the faults. Raise ValueError naming an unknown kind and the known ones."""
        wanted = {}
        for word in words:
            kind, _, value = word.partition("=")
            if kind not in KINDS:
                raise ValueError(f"unknown fault {kind!r}; known: {', '.join(KINDS)}")
            wanted[kind] = value
        return cls(wanted)

    def __contains__(self, kind: str) -> bool:
        return kind in self._wanted

    def text(self, kind: str, default: str) -> str:
        """The value of a fault that is on, or what stands for none."""
        return self._wanted[kind] or default

    def seconds(self, kind: str, default: float) -> float:
        """The value of a fault in seconds; 0 when it is off."""
        return float(self.text(kind, str(default))) if kind in self else 0.0

    def count(self, kind: str, default: int) -> int | None:
        """The value of a fault as a whole number; None when it is off."""
        return int(self.text(kind, str(default))) if kind in self else None

    def coded(self, kind: str, code: int, rest: str) -> tuple[int, str]:
        """The value CODE[:REST] of a fault that is on."""
        first, _, second = self.text(kind, str(code)).partition(":")
        return int(first or code), second or rest


class FaultyLog(Log):
    """A log that ends the process after some lines, and cuts lines up."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._lines = 0

    def line(self, text: str) -> None:
        super().line(text)
        self._lines += 1
        if "exit" in self._faults:
            code, lines = self._faults.coded("exit", 1, "4")
            if self._lines == int(lines):
                if "traceback" in self._faults:
                    self.write_bytes(_TRACEBACK.encode())
                os._exit(code)

    def write_bytes(self, data: bytes) -> None:
        if "half-lines" not in self._faults:
            super().write_bytes(data)
            return
        for piece in pieces_of(data):
            super().write_bytes(piece)
            time.sleep(self._faults.seconds("half-lines", 0.01))


def pieces_of(data: bytes) -> list[bytes]:
    """Given bytes, return them in pieces; one cut falls inside the first character that is not ASCII, if any."""
    inside = next((at + 1 for at, byte in enumerate(data) if byte >= 0xC0), len(data) // _PIECES)
    later = inside + max((len(data) - inside) // 2, 1)
    return [piece for piece in (data[:inside], data[inside:later], data[later:]) if piece]


class StepFaults:
    """What goes wrong in the engine before a step: a hang after some requests, or slowness."""

    def __init__(self, faults: Faults) -> None:
        self._hang_after = faults.count("hang", 0)
        self._delay = faults.seconds("step-delay", 0.01)
        self.submitted = 0

    def before_step(self) -> None:
        """Called before each step."""
        while self._hang_after is not None and self.submitted > self._hang_after:
            signal.pause()
        if self._delay:
            time.sleep(self._delay)


def ignore_sigterm(faults: Faults) -> bool:
    """Whether SIGTERM is to be ignored; if so, it is from now on."""
    if "ignore-sigterm" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return True
    return False


def hold_port(faults: Faults, listening: socket.socket) -> None:
    """Start the child that keeps the listening socket open after this process has gone, however it goes."""
    if "hold-port" in faults:
        seconds = faults.seconds("hold-port", 10.0)
        subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(os.getpid()), str(seconds)],
            pass_fds=[listening.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


_HOLDER = """
import os, sys, time
while os.getppid() == int(sys.argv[1]):
    time.sleep(0.02)
time.sleep(float(sys.argv[2]))
"""

_TRACEBACK = """\
Traceback (most recent call last):
  File "engine/core.py", line 1, in run_engine_core
ValueError: this failure was asked for (--fault exit)
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
