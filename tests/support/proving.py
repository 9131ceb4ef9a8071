"""Swaps by the hundred on one site: three kinds of swap of lanes that are there at once, and what must hold after each
of them, whatever was done to it. A site that was left in a bad state is made anew before the next swap."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lanectl.core.container import Container, Status
from lanectl.core.journal import SwapState, fold
from lanectl.engine.docker_probe import PROBE_NAME
from lanectl.errors import ExitCode
from lanectl.store.audit import INTENT, OUTCOME, entries
from lanectl.store.journal import load_all
from tests.support.aftermath import is_back, serves_alone
from tests.support.engine_images import REPOSITORY_ROOT
from tests.support.poll import until
from tests.support.station import SOON_S, RealSite

SERVER = str(REPOSITORY_ROOT / "tests" / "support" / "instant_server.py")
INSTANT: dict[str, Any] = {
    "command": ("-I", "-S", SERVER, "--host", "${host}", "--port", "${port}"),
    "faults": "",
    "stop_grace_period": "1s",
}
FAILS = INSTANT | {"command": (*INSTANT["command"], "--exit", "3")}
SIGKILLED = -9


@dataclass(frozen=True)
class Numbers:
    """What a measurement leaves."""

    profile: str

    def to_json(self) -> dict[str, Any]:
        return {"profile": self.profile, "cells": []}


def measure(*, profile: str, check: Callable[[], None], **_: Any) -> Numbers:
    """A measurement that asks the server nothing: for swaps in this process, whose calls to the engine are the same."""
    check()
    return Numbers(profile)


@dataclass(frozen=True)
class Scenario:
    """A kind of swap: for this process, and as words of a command line."""

    lane: str
    wish: Mapping[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()


SCENARIOS = {
    "measured": Scenario("cand", {"measure": True}, ("--measure", "--profile", "quick")),
    "kept": Scenario("cand", {"keep": True}, ("--keep",)),
    "candidate fails": Scenario("bad"),
}


@dataclass(frozen=True)
class Survived:
    """How a swap went that something was done to. `code`: how the command ended, None when it was killed. `dark`: it
    was DARK before somebody recovered; `recovered`: a `recover` was needed. `seconds`: until all was well again."""

    code: int | None
    dark: bool
    recovered: bool
    seconds: float


class Proving:
    """A site made by `make`, for one swap after the other.

    `lanes`: keys of its three lanes by name. `settle`: called once a swap is over, to end what was done to it.
    """

    def __init__(
        self,
        folder: Path,
        make: Callable[[Path], RealSite],
        lanes: Mapping[str, Mapping[str, Any]] | None = None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._make = make
        self._lanes = lanes or {}
        self._settle = settle
        self._made = 0
        self._killed = self._guards_lost = 0
        self._good = False
        self.site: RealSite
        self.production: Container

    def ready(self) -> RealSite:
        """Give the site with production serving and proven."""
        if self._good:
            return self.site
        self.close()
        self._made += 1
        self._killed = self._guards_lost = 0
        self.site = self._make(self._folder / f"site-{self._made}")
        self.production = self.site.produce(**INSTANT, **self._lanes.get("prod", {}))
        self.site.lane("cand", **INSTANT, **self._lanes.get("cand", {}))
        self.site.lane("bad", **FAILS, **self._lanes.get("bad", {}))
        self._good = True
        return self.site

    def in_this_process(self, scenario: Scenario) -> Survived:
        """Run the swap, recover if it says so, and see that all is well. Raise AssertionError when it is not."""
        began = time.monotonic()
        with self._careful():
            ended = self.site.swap(scenario.lane, station=self.site.station(measure=measure), **scenario.wish)
            return self._judged(scenario, int(ended.exit_code), began)

    def as_a_process(
        self, scenario: Scenario, begin: Callable[[list[str]], int], *, guard_dies: bool = False
    ) -> Survived:
        """The same with a real process and its real guard: `begin` runs these words to their end, by a kill perhaps,
        and returns how it ended. `guard_dies`: its guard may be killed, too."""
        began = time.monotonic()
        with self._careful():
            code = begin(["swap", scenario.lane, "--yes", *scenario.words])
            until(lambda: not self.site.guards(), SOON_S, "the guard has ended")
            self._killed += code == SIGKILLED
            self._guards_lost = self._guards_without_outcome() if guard_dies else self._guards_lost
            return self._judged(scenario, None if code == SIGKILLED else code, began)

    def close(self) -> None:
        if self._made:
            self.site.close()
            shutil.rmtree(self.site.root)
            self._good = False

    def _judged(self, scenario: Scenario, code: int | None, began: float) -> Survived:
        self._settle()
        opened = [state for state in self._states() if state.closed is None]
        dark = any(state.stuck for state in opened)
        assert dark is (code == ExitCode.DARK) or code is None, (code, opened)
        assert not opened or code in (None, ExitCode.DARK, ExitCode.UNFINISHED), (code, opened)
        if opened:
            self.site.recover()
        self._all_is_well(scenario)
        return Survived(code, dark, bool(opened), time.monotonic() - began)

    def _states(self) -> tuple[SwapState, ...]:
        state = self.site.station().state
        return load_all(state.journal(swap) for swap in state.swap_ids())

    def _all_is_well(self, scenario: Scenario) -> None:
        """Exactly what is owed runs, proven, and nothing else is left; every record is whole."""
        until(self.site.ask, SOON_S, "production answers")  # one that no swap touched may come back by its own policy
        self._sweep_probes()
        killed = self._killed + self._guards_lost
        if fold(self.site.records()).committed:
            assert scenario.wish.get("keep")
            serves_alone(self.site, f"{self.site.prefix}{scenario.lane}", killed=killed)
            self._good = False
        else:
            is_back(self.site, self.production, killed=killed)

    def _guards_without_outcome(self) -> int:
        """Return how many guards said in the audit what they were about to do and never how it ended."""
        events = [one["event"] for one in entries(self.site.station().state.audit) if one["command"] == "guard"]
        return events.count(INTENT) - events.count(OUTCOME)

    def _sweep_probes(self) -> None:
        """A probe for CDI devices is no part of a swap: one that is left never ran, the next preflight removes it."""
        for name, container in self.site.containers().items():
            if name.startswith(PROBE_NAME):
                assert container.status is Status.CREATED, container
                self.site.engine.remove(container.id)

    @contextlib.contextmanager
    def _careful(self) -> Iterator[None]:
        """After a failure the next swap begins on a fresh site."""
        try:
            yield
        except BaseException:
            self._good = False
            raise
