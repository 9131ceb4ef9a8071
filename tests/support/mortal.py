"""Death at a chosen moment: nothing the process would have done afterwards happens.

A process dies between two instructions; what matters is what is durable by then. So a death is placed at an append to
a journal: `before` it (the effect it speaks of is done, the record is not there), in the middle (`torn`: half a line),
or `after` it (a `begin` is durable and its effect has not happened); or right after an effect on the engine, for steps
that have several. From then on every call to the engine and every append of the same life raises `Died` as well, so
that no handler of the code under test acts after its death.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lanectl.store.files import AppendLog
from tests.support.fake_engine import FakeEngine
from tests.support.fake_world import World

BEFORE, TORN, AFTER = "before", "torn", "after"
HOWS = (BEFORE, TORN, AFTER)
EFFECT = "effect"  # not at a record: right after a call that changes something
EFFECTS = frozenset(("create", "start", "stop", "kill", "rename", "set_restart", "remove", "keep_image"))


class Died(BaseException):
    """The process is dead; nothing catches it but the test."""


class Life:
    """One process's life: it dies at its `at`-th append (from 1), `how`, or at its `at`-th effect; 0: never.

    `lines`: what it appended, the line it died at too. `effects`: how many calls changed something. `meanwhile`: what
    happens to the world right before its n-th append or effect, counted together.
    """

    def __init__(self, at: int = 0, how: str = AFTER) -> None:
        self.at = at
        self.how = how
        self.lines: list[bytes] = []
        self.effects = 0
        self.dead = False
        self.events = 0
        self.meanwhile: dict[int, Callable[[], object]] = {}

    def must_live(self) -> None:
        if self.dead:
            raise Died

    def event(self) -> None:
        """Something is about to be appended, or to have an effect."""
        self.events += 1
        if self.events in self.meanwhile:
            self.meanwhile[self.events]()
        self.must_live()

    def append(self, log: AppendLog, line: bytes) -> None:
        self.must_live()
        self.event()
        self.lines.append(line)
        if self.how == EFFECT or len(self.lines) != self.at:
            AppendLog.append(log, line)
            return
        self.dead = True
        if self.how == TORN:
            _write_raw(log.path, line[: len(line) // 2])
        if self.how == AFTER:
            AppendLog.append(log, line)
        raise Died

    def effect(self) -> None:
        self.effects += 1
        if self.how == EFFECT and self.effects == self.at:
            self.dead = True
            raise Died


def _write_raw(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


class MortalEngine(FakeEngine):
    """The engine as one life sees it: after its death no call is made."""

    def __init__(self, world: World, life: Life, pinned: str | None = None) -> None:
        super().__init__(world, pinned)
        self._life = life

    @contextmanager
    def _call(self, call: str, ref: str = "") -> Iterator[None]:
        self._life.must_live()
        if call in EFFECTS:
            self._life.event()
        with super()._call(call, ref):
            yield
        if call in EFFECTS:
            self._life.effect()


def live(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, journals are written by this life."""

    class Log(AppendLog):
        def append(self, line: bytes) -> None:
            life.append(self, line)

    monkeypatch.setattr("lanectl.store.journal.AppendLog", Log)
