"""Fault switches: ways to misbehave, each off unless asked for, in any combination.

`--fault KIND[=VALUE]`, or the environment variable REFERENCE_FAULTS with several separated by spaces. This module
has the list, and the faults of booting, stepping and ending; those of HTTP answers and of event streams have modules of
their own.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
from typing import NamedTuple

from lanectl.reference.bootlog import Log

VARIABLE = "REFERENCE_FAULTS"


class Kind(NamedTuple):
    """A switch: the form of its value ("" for none), the value when none is given, and what it does."""

    form: str
    default: str
    does: str


KINDS = {
    "boot-delay": Kind("SECONDS", "10", "wait before the port opens"),
    "loading": Kind("SECONDS", "10", "open the port at once, but answer /health with 503 for a while"),
    "exit": Kind("CODE[:LINES]", "1:4", "end with CODE after LINES lines of the boot log"),
    "traceback": Kind(
        "", "", "with exit: log a traceback ending in 'RuntimeError: Engine core initialization failed.'"
    ),
    "half-lines": Kind("SECONDS", "0.01", "log lines beyond ASCII, in pieces this far apart, cut in mid-character too"),
    "hang": Kind("N", "0", "after N requests nothing is generated any more; /health stays 200"),
    "step-delay": Kind("SECONDS", "0.01", "sleep before every step"),
    "ignore-sigterm": Kind("", "", "SIGTERM does nothing"),
    "hold-port": Kind("SECONDS", "10", "a child process keeps the listening socket this long after the server is gone"),
    "answer": Kind("CODE[:PREFIX]", "301:/", "answer every path that begins with PREFIX with CODE"),
    "wrong-model": Kind("NAME", "another-model", "/v1/models lists NAME"),
    "reject": Kind("FIELD", "return_token_ids", "answer a body that has FIELD with 400, naming it"),
    "die": Kind("N", "3", "the process kills itself after the Nth chunk of a stream"),
    "error-at": Kind("N", "3", "an error object and [DONE] after the Nth chunk of a stream"),
    "cut": Kind("N", "3", "the connection ends after the Nth chunk of a stream, without [DONE]"),
    "no-usage": Kind("", "", "streams without the usage chunk"),
    "wrong-usage": Kind("N", "1", "completion_tokens in the usage chunk is N too many"),
    "early-role": Kind("", "", "a chat's role chunk goes out at once, long before the first token"),
    "no-role": Kind("", "", "chat streams without the role chunk"),
    "merge": Kind("N", "4", "N tokens in a chunk"),
    "crlf": Kind("", "", "events end with CRLF CRLF"),
    "no-space": Kind("", "", "`data:` without a space"),
    "comments": Kind("", "", "a keep-alive comment before every event"),
    "split-writes": Kind("", "", "every event in several writes, cut inside a character too"),
    "u2028": Kind("", "", "a U+2028, unescaped, at the end of every piece of text"),
    "reasoning": Kind("", "", "chat text goes out as `reasoning` instead of `content`"),
    "old-reasoning": Kind("", "", "chat text goes out as `reasoning_content` instead of `content`"),
    "peer-slow": Kind("FACTOR", "10", "sidecar: every call takes FACTOR times as long"),
    "peer-slow-on-signal": Kind("FACTOR", "10", "sidecar: SIGUSR1 makes it that slow, the next one as fast as it was"),
    "peer-exit": Kind("N", "1000", "sidecar: it ends, with code 1, in its Nth call"),
    "peer-freeze": Kind("N", "1000", "sidecar: it stands still in its Nth call, until SIGCONT"),
    "peer-wrong": Kind("FACTOR", "0.1", "sidecar: outputs are off by FACTOR times their size"),
    "corrupt-move": Kind("N", "1", "the expert that becomes hot in the Nth swap of adaptive residency loses a bit"),
    "damaged-expert": Kind("", "", "sidecar: one expert is wrong, so that the self test fails"),
}

_FORMS = {
    "": "",
    "SECONDS": r"\d+(\.\d+)?",
    "N": r"\d+",
    "FACTOR": r"\d+(\.\d+)?",
    "CODE[:LINES]": r"\d{1,3}(:[1-9]\d*)?",
    "CODE[:PREFIX]": r"[2-5]\d\d(:/.*)?",
    "NAME": ".+",
    "FIELD": ".+",
}
_BEYOND_ASCII = " … Größe"  # what a cut-up log line gets at its end, so that there is a character to cut


class Faults:
    """Which faults are on, with their values."""

    def __init__(self, wanted: dict[str, str]) -> None:
        self._wanted = wanted

    @classmethod
    def read(cls, words: list[str]) -> Faults:
        """Given KIND[=VALUE] words, return the faults. Raise ValueError saying what is wrong and what is right."""
        wanted = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in KINDS:
                raise ValueError(f"unknown fault {name!r}; known: {', '.join(KINDS)}")
            kind = KINDS[name]
            wanted[name] = value or kind.default
            if not re.fullmatch(_FORMS[kind.form], wanted[name]):
                raise ValueError(f"fault {name!r} takes {kind.form or 'no value'}, not {value!r}")
        return cls(wanted)

    def __contains__(self, name: str) -> bool:
        return name in self._wanted

    def text(self, name: str) -> str:
        """The value of a fault that is on."""
        return self._wanted[name]

    def seconds(self, name: str) -> float:
        """The value of a fault in seconds; 0 when it is off."""
        return float(self._wanted.get(name, 0))

    def number(self, name: str) -> float:
        """The value of a fault as a number; 0 when it is off."""
        return float(self._wanted.get(name, 0))

    def count(self, name: str) -> int | None:
        """The value of a fault as a whole number; None when it is off."""
        return int(self._wanted[name]) if name in self._wanted else None

    def coded(self, name: str) -> tuple[int, str]:
        """The two parts of a fault that is on and whose value is CODE[:…]; the second may be left out."""
        code, _, rest = self._wanted[name].partition(":")
        return int(code), rest or KINDS[name].default.partition(":")[2]


class FaultyLog(Log):
    """A log that ends the process after some lines, and cuts lines up."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._lines = 0

    def line(self, text: str) -> None:
        super().line(text + _BEYOND_ASCII if "half-lines" in self._faults else text)
        self._lines += 1
        if "exit" in self._faults:
            code, lines = self._faults.coded("exit")
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
            time.sleep(self._faults.seconds("half-lines"))


def pieces_of(data: bytes) -> list[bytes]:
    """Given bytes, return them in pieces: cut at each third, and inside the first character that is not ASCII."""
    cuts = {0, len(data) // 3, 2 * len(data) // 3, len(data)}
    cuts |= {at + 1 for at, byte in enumerate(data) if byte >= 0xC0 and not any(other >= 0xC0 for other in data[:at])}
    return [data[start:end] for start, end in itertools.pairwise(sorted(cuts))]


class StepFaults:
    """What goes wrong in the engine before a step: a hang after some requests, or slowness."""

    def __init__(self, faults: Faults) -> None:
        self._hang_after = faults.count("hang")
        self._delay = faults.seconds("step-delay")
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
        seconds = faults.seconds("hold-port")
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
