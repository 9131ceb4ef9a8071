"""What the contract suite needs of an engine under test, and the programs that its containers run.

An engine joins the suite by a module `tests/contract/harness_<engine>.py` with `make(request) -> Harness`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from lanectl.core.container import CreateArgs
from lanectl.core.lane import Restart
from lanectl.ports import ContainerEngine

OUT, ERR = 1, 2


@dataclass(frozen=True)
class Write:
    """Bytes that the program writes with one call, and how long it waits afterwards."""

    data: bytes
    stream: int = OUT
    then_wait_s: float = 0.0


@dataclass(frozen=True)
class Script:
    """What a container's first process does: write, start children, then exit with `exits` or run until it is ended.

    On its stop signal (SIGTERM) it exits at once with `term_code`; None: it ignores the signal.
    """

    writes: tuple[Write, ...] = ()
    exits: int | None = None
    term_code: int | None = 0
    children: int = 0

    def as_shell(self) -> str:
        """Return the program for a POSIX shell, as in `sh -c`."""
        lines = [f"trap {'exit ' + str(self.term_code) if self.term_code is not None else ''!r} TERM"]
        lines += ["sleep 1000 &"] * self.children
        for write in self.writes:
            lines.append(f"printf '{_printf_format(write.data)}'" + (" >&2" if write.stream == ERR else ""))
            if write.then_wait_s:
                lines.append(f"sleep {write.then_wait_s:g}")
        lines.append(f"exit {self.exits}" if self.exits is not None else "while :; do sleep 1 & wait $!; done")
        return "\n".join(lines)


def _printf_format(data: bytes) -> str:
    """Return a format that makes printf(1) write these bytes: letters and digits as they are, all else in octal."""
    return "".join(chr(byte) if chr(byte).isascii() and chr(byte).isalnum() else f"\\{byte:03o}" for byte in data)


def says(*texts: str, exits: int | None = None) -> Script:
    """Return a program that writes these texts, one call each."""
    return Script(tuple(Write(text.encode()) for text in texts), exits=exits)


class Harness(Protocol):
    """One engine under test.

    `image` is the id of an image that is there. `known_device` is a CDI name the engine can inject, None where the
    engine at hand has none. `restarts`: the engine itself starts a container again as its restart policy says.
    """

    name: str
    engine: ContainerEngine
    image: str
    known_device: str | None
    restarts: bool

    def args(
        self,
        name: str,
        script: Script,
        *,
        labels: Mapping[str, str] | None = None,
        restart: Restart | None = None,
        image: str | None = None,
        devices: tuple[str, ...] = (),
    ) -> CreateArgs:
        """Return create arguments for a container named `unique(name)` that runs the script."""
        ...

    def unique(self, name: str) -> str:
        """Return the name that a container of this test has for a short name; what carries it is removed afterwards."""
        ...

    def pause(self, ref: str) -> None:
        """Freeze a running container's processes, as an operator would."""
        ...
