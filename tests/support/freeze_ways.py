"""Ways to freeze a lane's sidecar, and the campaign: one after the other at random moments, what clients were told."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lanectl.store import process
from tests.support.engine_api import call
from tests.support.frozen import Answers, FrozenLane

LATEST_S = 0.4  # of the load: within it every client has asked several times
MOST_MISSED = 10  # a machine that keeps the sidecar waiting for a stall bound so often is too busy to prove anything


@dataclass(frozen=True)
class Way:
    """`thaw`: what undoes it, for a sidecar that still works, slowly: such a lane may trip. The others must."""

    freeze: Callable[[FrozenLane], None]
    thaw: Callable[[FrozenLane], None] | None = None


@dataclass
class Tally:
    """What one way of freezing led to. `under_way`: answers that were at the moment of the freeze; `wrong`: neither
    the unfrozen lane's nor cut; `missed`: lanes that tripped of themselves before they were frozen."""

    freezes: int = 0
    trips: int = 0
    under_way: int = 0
    whole: int = 0
    cut: int = 0
    missed: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, answers: Answers) -> None:
        """Count a freeze in, or one that came too late. Raise AssertionError when it froze nobody's answer."""
        self.whole, self.cut = self.whole + answers.whole, self.cut + answers.cut
        self.wrong += answers.wrong
        if not answers.frozen:
            self.missed += 1
            assert self.missed <= MOST_MISSED, "again and again the lane trips before it is frozen"
            return
        assert answers.under_way, "nobody was asking at the moment of the freeze"
        self.freezes += 1
        self.trips += answers.tripped
        self.under_way += answers.under_way


def freeze_often(
    lane: FrozenLane, ways: Mapping[str, Way], names: Iterable[str], dice: random.Random
) -> dict[str, Tally]:
    """Freeze a lane that serves in these ways, in this order, a person starting it again after each trip."""
    tallies: dict[str, Tally] = {}
    for name in names:
        tally = tallies.setdefault(name, Tally())
        before = tally.freezes
        while tally.freezes == before:
            if lane.tripped() is not None:
                lane.again()
            way = ways[name]
            tally.add(lane.frozen(way.freeze, dice.uniform(0, LATEST_S), way.thaw))
    return tallies


def paused(lane: FrozenLane) -> None:
    call(lane.url, "POST", f"/containers/{lane.sidecar().id}/pause")


def killed_by_engine(lane: FrozenLane) -> None:
    lane.site.engine.kill(lane.sidecar().id)


def stopped(lane: FrozenLane) -> None:
    lane.signal_sidecar(signal.SIGSTOP)


def stopped_unwatched(lane: FrozenLane) -> None:
    """At a moment at which nobody looks: the watcher has just died."""
    process.signal(lane.watch().watcher, signal.SIGKILL)
    stopped(lane)


def killed(lane: FrozenLane) -> None:
    os.kill(lane.sidecar_pid(), signal.SIGKILL)


def change_speed(lane: FrozenLane) -> None:
    """Ten times as slow, or as fast as before: the switch peer-slow-on-signal of the sidecar."""
    os.kill(lane.sidecar_pid(), signal.SIGUSR1)


def truncated(lane: FrozenLane) -> None:
    os.truncate(lane.counters, 16)


def removed(lane: FrozenLane) -> None:
    lane.counters.unlink()


def replaced(lane: FrozenLane) -> None:
    """A copy in the file's place: what is mapped goes on, what is looked at is another file."""
    copy = lane.counters.with_suffix(".copy")
    shutil.copyfile(lane.counters, copy)
    copy.replace(lane.counters)


LOCAL: Mapping[str, Way] = {
    "SIGSTOP": Way(stopped),
    "SIGSTOP, its watcher killed": Way(stopped_unwatched),
    "SIGKILL": Way(killed),
    "10 times as slow": Way(change_speed, thaw=change_speed),
    "file truncated": Way(truncated),
    "file removed": Way(removed),
    "file replaced": Way(replaced),
}
DOCKER: Mapping[str, Way] = {"docker pause": Way(paused), "docker kill": Way(killed_by_engine), **LOCAL}
