"""Every failure lanectl reports: what and where, what to run next, and the published exit code.

`cli/app.py` is the one place that prints an error and exits. Everything else raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """The published exit codes. docs/runbook.md says what to do about each."""

    OK = 0
    FAILED = 1  # a gate failed or was inconclusive (production serving); health: lane down or wrong
    USAGE = 2  # command line, spec or site is wrong
    REFUSED = 3  # preflight said no; nothing was touched
    CANDIDATE = 4  # candidate failed to boot, become ready or stay up; production restored and serving
    DARK = 5  # nothing serves, and lanectl could not bring back what is owed
    UNFINISHED = 6  # a swap was left unfinished: recover first
    UNREACHABLE = 7  # engine or server cannot be reached, or the answer is unknown
    TRIPPED = 8  # the watchdog tripped
    FAULT = 70  # a fault in lanectl itself (EX_SOFTWARE of sysexits.h)
    BUSY = 75  # somebody else holds the lock (EX_TEMPFAIL of sysexits.h)
    INTERRUPTED = 130  # 128 + SIGINT; production restored and serving


class LaneError(Exception):
    """A failure a person can act on: `message` says where and what, `hint` what to run next."""

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str, hint: str | None = None, exit_code: ExitCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a file or a precondition.

    `where` is `file:line` (or the name of a check), `path` the key's path such as `services.server.devices[0]`.
    """

    where: str
    message: str
    path: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: {self.path}: " if self.path else f"{self.where}: "
        return place + self.message + (f" ({self.hint})" if self.hint else "")


class SpecError(LaneError):
    """Everything wrong with a site or lane, all at once. Exit 2."""

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[Problem], hint: str | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems), hint)


class Refused(LaneError):
    """Preflight found reasons not to start; nothing was touched. Exit 3."""

    exit_code = ExitCode.REFUSED

    def __init__(self, problems: Iterable[Problem], hint: str | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems), hint)


class Unguarded(LaneError):
    """The guard died before production was stopped, so nothing is stopped. Exit 3."""

    exit_code = ExitCode.REFUSED


class CandidateFailed(LaneError):
    """The candidate did not boot, become ready or stay up. Exit 4 once production is back."""

    exit_code = ExitCode.CANDIDATE

    def __init__(self, step: str, reason: str, message: str, tail: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.step = step
        self.reason = reason
        self.tail = tuple(tail)


class GateFailed(CandidateFailed):
    """A gate did not pass on the candidate's boot; `verdict`: what the journal keeps of it. Exit 1, production back."""

    exit_code = ExitCode.FAILED

    def __init__(self, step: str, message: str, verdict: dict[str, object]) -> None:
        super().__init__(step, "GATE", message)
        self.verdict = verdict


class Dark(LaneError):
    """Nothing serves and what is owed could not be brought back. Exit 5."""

    exit_code = ExitCode.DARK


class Unfinished(LaneError):
    """A swap's journal is open and nobody holds the lock. Exit 6."""

    exit_code = ExitCode.UNFINISHED


class Unreachable(LaneError):
    """The engine or a server cannot be reached, or its answer says nothing. Exit 7."""

    exit_code = ExitCode.UNREACHABLE


class Busy(LaneError):
    """Somebody else holds the lock. Exit 75."""

    exit_code = ExitCode.BUSY


class Interrupted(LaneError):
    """A person or the system asked the swap to stop. Exit 130 once production is back."""

    exit_code = ExitCode.INTERRUPTED


class StillHeld(LaneError):
    """A port or a GPU's memory is still held by somebody: time, or whoever holds it, can cure that."""


class EngineError(LaneError):
    """The container engine refused or failed a call. Exit 7 unless a caller knows better."""

    exit_code = ExitCode.UNREACHABLE


class EngineUnknown(EngineError):
    """A call's outcome is unknown (time-out, connection lost): look before acting again."""


class NotThere(EngineError):
    """No such container or image."""


class NameTaken(EngineError):
    """Another container has this name."""


class DeviceUnknown(EngineError):
    """The engine cannot resolve a CDI device name."""
