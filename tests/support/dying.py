"""`kill -9` of a real swap right after a chosen line of its journal or the audit, and of its guard likewise."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from lanectl.core.journal import Kind
from tests.support.proving import SCENARIOS, SIGKILLED, Proving, Survived
from tests.support.station import SOON_S

HOOK = Path(__file__).parent / "dies"
WISH = "LANECTL_TEST_DIES_AT"
GUARD_LINES = 6  # a guard that restores writes at least so many: it is killed after one of them
AUDITED = 2  # lines of the audit that a swap writes: its intent and its outcome


@dataclass(frozen=True)
class Death:
    """The swap dies after its `at`-th line; its guard after its `guard_at`-th, 0: never."""

    scenario: str
    at: int
    guard_at: int = 0

    def __str__(self) -> str:
        guard = f", its guard after its line {self.guard_at}" if self.guard_at else ""
        return f"{self.scenario}: killed after line {self.at}{guard}"


def lines_of(proving: Proving, scenario: str) -> int:
    """Run a swap in which nobody dies; return how many lines it wrote."""
    site = proving.ready()
    survived = proving.in_this_process(SCENARIOS[scenario])
    assert not survived.recovered, survived
    return len(site.records()) + AUDITED


def deaths(proving: Proving, scenario: str) -> list[Death]:
    """Return a death after every line, with the guard alone to restore, and with the guard killed after some line."""
    return [
        Death(scenario, at, guard_at)
        for at in range(1, lines_of(proving, scenario) + 1)
        for guard_at in (0, 1 + at % GUARD_LINES)
    ]


def die(proving: Proving, death: Death) -> Survived:
    """Run a swap that dies so. Raise AssertionError unless what is owed is back, by the guard alone where it lives."""
    site = proving.ready()

    def begin(words: list[str]) -> int:
        wish = f"swap:{death.at}" + (f" guard:{death.guard_at}" if death.guard_at else "")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(WISH, wish)
            patch.setenv("PYTHONPATH", str(HOOK), prepend=os.pathsep)
            process = site.begin(*words).process
        code = process.wait(SOON_S)
        assert code == SIGKILLED, f"it did not die: {death}"
        return code

    survived = proving.as_a_process(SCENARIOS[death.scenario], begin, guard_dies=death.guard_at > 0)
    guarded = site.record(Kind.DONE, "guard") is not None
    assert not (survived.recovered and guarded and not death.guard_at), f"its guard did nothing: {death}"
    return survived
