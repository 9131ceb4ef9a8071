"""One machine, its operator and whatever goes wrong: commands, deaths, faults and the world's own moves on a world in
memory, beside a book of its own about what is owed.

The book changes only where lanectl's promise says so: at a COMMITTED record, read from the journal's text; at a stop or
start that succeeded; at an adoption. `settle` lifts everything that can be lifted, recovers, and compares.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from lanectl.actions.adopt import adopt
from lanectl.actions.interrupts import Interrupts
from lanectl.actions.progress import Silent
from lanectl.actions.recover import recover
from lanectl.actions.rollback import rollback
from lanectl.actions.start import restart, start
from lanectl.actions.station import Station
from lanectl.actions.stop import stop
from lanectl.actions.swap import SwapRequest, swap
from lanectl.core.container import Image
from lanectl.core.owed import Owed, OwedService
from lanectl.errors import Dark, ExitCode, LaneError, Unreachable
from lanectl.store.lock import Lock
from tests.crash.invariant import armed, committed, holds, picture, production_is
from tests.support.engine_cdi import KIND, NAMES
from tests.support.fake_engine import ENGINE_ID, Fault
from tests.support.fake_station import SPEAKS, WELL, FakeSite
from tests.support.fake_world import FakeContainer, Listener, Program
from tests.support.full_disk import FullDisk
from tests.support.mortal import AFTER, Died, Life, MortalEngine, live

SERVING, STOPPED = "serving", "stopped"
LANES = ("prod", "cand", "heavy", "alike")
HAND = "hand"  # a lane that the operator starts without lanectl
KEEP_TAG = "lanectl-keep:"
LONG_S = 24 * 3600.0  # longer than any back-off
SOON = {"timeout": "2s", "completion": {"within": "1s"}}
PROGRAMS: dict[str, Program] = {
    "well": WELL,
    "dies": Program(exits_after_s=0.3, exit_code=1),
    "ends well": Program(exits_after_s=0.3),
    "hangs": replace(WELL, hangs=True),
    "answers as another": replace(WELL, model="other"),
    "ignores TERM": replace(WELL, term_code=None),
    "late": replace(WELL, listens_after_s=1000.0),
    "cannot start": Program(start_error="no such file"),
    "frees late": replace(WELL, gpu_free_after_s=5.0),
}


@dataclass(frozen=True)
class Trouble:
    """What goes wrong during one command. Events are its appends and effects, counted from 1.

    `death`: at which record or effect it dies, and how. `faults`: of its engine. `away`: from which event on the engine
    cannot be reached, and for how many seconds. `meanwhile`: at which event what happens to the world, and to which of
    its containers. `asked`: at which event somebody presses Ctrl-C.
    """

    death: tuple[int, str] = (0, AFTER)
    faults: tuple[Fault, ...] = ()
    away: tuple[int, float] | None = None
    meanwhile: tuple[int, str, int] | None = None
    asked: int | None = None


NONE = Trouble()


@dataclass
class Book:
    """What a person was promised: the lane that is production, the one before it, and whether it is to serve."""

    current: str = ""
    previous: str = ""
    desired: str = SERVING

    def promote(self, lane: str) -> None:
        self.previous = self.current or self.previous
        self.current, self.desired = lane, SERVING

    def adopt(self, lane: str) -> None:
        """Adopting the same lane again replaces its record: there is no going back to what was found gone."""
        if lane != self.current:
            self.previous = self.current
        self.current, self.desired = lane, SERVING


class ModelEngine(MortalEngine):
    """The machine's engine as one command sees it."""

    def __init__(self, model: Model, life: Life) -> None:
        super().__init__(model.site.world, life, ENGINE_ID)
        self._model = model

    def _strike(self, name: str, ref: str, *, after: bool) -> None:
        if not after and self._model.site.clock.monotonic() < self._model.away_until:
            raise Unreachable("the daemon does not answer")
        super()._strike(name, ref, after=after)


@dataclass
class Model:
    """See above. `log` tells the schedule, for a person who reads a failure."""

    folder: Path
    patch: pytest.MonkeyPatch
    book: Book = field(default_factory=Book)
    away_until: float = 0.0
    boot: int = 1
    log: list[str] = field(default_factory=list)
    commands: int = 0

    def __post_init__(self) -> None:
        self.patch.setattr("lanectl.actions.preflight._WATCHES", ())  # notices stop nothing, and cost a look at /proc
        self.patch.setattr("lanectl.actions.gone.PORT_LOOK_EVERY_S", 1.0)
        self.disk = FullDisk(self.patch)
        self._listening = Interrupts()
        live(Life(), self.patch)
        self.site = FakeSite(self.folder)
        heavy: dict[str, Any] = {"devices": [NAMES["gb300"]]}
        heavy["memory"] = {"gpu": "gb300", "stable": "1s", "within": "3s"}
        self.site.lane("prod", ready=SOON, restart="unless-stopped", stop_grace_period="2s")
        self.site.lane("cand", ready=SOON, more={"stable_for": "1s"}, stop_grace_period="2s")
        self.site.lane("heavy", replace(WELL, gpu_mib=2000), sidecar=SPEAKS, ready=SOON, restart="always", **heavy)
        self.site.lane("alike", image_of="prod", container_name="prod", ready=SOON, restart="always")
        self.site.lane(HAND, ready=SOON)
        self._images = dict(self.site.world.images)
        self._unfinished_stop = False
        self._policies = True  # every restart policy could be set
        self._strange = False  # somebody else changed containers since the last settlement
        self.aside: set[str] = set()  # ids of containers that a person took out of lanectl's hands

    # Commands

    def swap(self, lane: str, trouble: Trouble = NONE, **wish: Any) -> LaneError | None:
        self._tell("swap", lane, wish, trouble)
        interrupts = self._interrupts()

        def run(station: Station) -> str:
            return swap(station, SwapRequest(lane, **wish), Silent(), interrupts).outcome

        return self._operate(run, trouble, lane, keep=wish.get("keep", False))

    def rollback(self, trouble: Trouble = NONE) -> LaneError | None:
        self._tell("rollback", trouble)
        interrupts = self._interrupts()

        def run(station: Station) -> str:
            return rollback(station, Silent(), interrupts).outcome

        error = self._operate(run, trouble, self.book.previous, keep=True)
        if not self.book.previous and not self._open():
            assert error is None or error.exit_code is ExitCode.REFUSED, error
        return error

    def start(self, trouble: Trouble = NONE) -> LaneError | None:
        self._tell("start", trouble)
        return self._serve(start, trouble)

    def restart(self, trouble: Trouble = NONE) -> LaneError | None:
        self._tell("restart", trouble)
        return self._serve(restart, trouble)

    def stop(self, trouble: Trouble = NONE) -> LaneError | None:
        self._tell("stop", trouble)
        died, error = self._run(lambda station: stop(station, Silent()), trouble)
        if not died and error is None:
            self.book.desired, self._unfinished_stop = STOPPED, False
            assert trouble.meanwhile or self._strange or not self._running(self._current())
        else:
            self._desired_is_either()
        return error

    def recover(self, trouble: Trouble = NONE, *, if_needed: bool = False) -> LaneError | None:
        self._tell("recover", {"if_needed": if_needed}, trouble)
        before = self._committed()
        _, error = self._run(lambda station: recover(station, Silent(), if_needed=if_needed), trouble)
        assert self._committed() == before, "a recovery promoted a lane"
        return error

    def adopt(self, trouble: Trouble = NONE) -> LaneError | None:
        """The operator starts a lane by hand in production's place, and records it."""
        taken = any(one.name == HAND for one in self.site.world.containers.values())
        if self._open() or taken or self.site.images[HAND] not in self.site.world.images:
            return None
        self._tell("adopt", trouble)
        for one in tuple(self.site.world.containers.values()):
            self.aside.add(one.id)
            if one.status in ("running", "paused", "restarting"):
                self.site.engine.kill(one.id)
        made = self.site.by_hand(HAND, HostConfig={"NetworkMode": "host"})
        self.site.clock.sleep(1.0)
        _, error = self._run(lambda station: adopt(station, [HAND], None), trouble)
        recorded = self._on_disk("current")
        if recorded is not None and recorded["lane"] == HAND:
            self.book.adopt(HAND)
        else:
            assert error is not None or trouble != NONE
            self.site.engine.remove(made.id)
        return error

    # The world's own moves

    def happens(self, what: str, pick: int = 0) -> None:
        """Have something happen to the world, to the `pick`-th of its containers where it is about one."""
        self._tell("happens", what, pick)
        self._strange = True
        with self.site.world.changed:
            _HAPPENS[what](self, pick)

    def becomes(self, lane: str, program: str) -> None:
        """From its next start on a lane's server runs another program."""
        self._tell("becomes", lane, program)
        gpu = 2000 if lane == "heavy" else 0
        self.site.becomes(lane, replace(PROGRAMS[program], gpu_mib=gpu))

    def passes(self, seconds: float) -> None:
        self._tell("passes", seconds)
        self.site.clock.sleep(seconds)

    # What must hold

    def settle(self) -> None:
        """Lift what can be lifted, recover, and compare with the book. What cannot be had is DARK, and said so."""
        self._tell("settle")
        self._lift()
        missing = self._missing()
        error = self._recovers()
        if missing:
            assert isinstance(error, Dark), f"{missing} are gone and it said {error!r}"
            assert error.exit_code is ExitCode.DARK
            assert any(image in error.message for image in missing), error.message
            assert not self._running(self._strays()), "a candidate runs in the dark"
            self.site.world.images |= {key: image for key, image in self._images.items() if key in missing}
            error = self._recovers()
        assert error is None, f"{error}: {error.hint}"
        if self._unfinished_stop or (self.book.desired == STOPPED and self._running(self._current())):
            assert self.stop() is None
        holds(self.site, self.aside, policies=self._policies)
        production_is(self.site, self.book.current, self.book.previous)
        assert (self._on_disk("desired") or SERVING) == self.book.desired
        before = picture(self.site)
        assert self.recover() is None
        assert picture(self.site) == before, "recovering a second time changed something"
        self._strange = False

    def _recovers(self) -> LaneError | None:
        """Recover; the timer may be the one to do it first."""
        self.site.clock.sleep(LONG_S)
        self.recover(if_needed=True)
        return self.recover()

    def _lift(self) -> None:
        world = self.site.world
        self.away_until, self.disk.full = 0.0, False
        world.strangers.clear()
        world.free_memory()
        for lane in (*LANES, HAND):
            self.becomes(lane, "well")
        with world.changed:
            for one in world.containers.values():
                program = world.program_of(one)
                if one.running and program is not None:
                    one.program = program
                if one.running and not self._is_candidate(one) and one.id not in self._owed_ids():
                    world.end(one, 0, by_hand=True)  # a person started a lane that is parked
        for _ in range(5):  # what ends now, starts again by its policy, and is up after that
            self.site.clock.sleep(1000.0)

    # How commands are run

    def _serve(self, verb: Callable[..., Any], trouble: Trouble) -> LaneError | None:
        def run(station: Station) -> str:
            return str(verb(station, Silent()).outcome)

        before = self._journals()
        error = self._operate(run, trouble, "", keep=False)
        if any(armed(self.site, swap) for swap in self._journals() - before):
            self.book.desired = SERVING
        else:
            self._desired_is_either()
        return error

    def _operate(self, run: Callable[[Station], str], trouble: Trouble, lane: str, *, keep: bool) -> LaneError | None:
        """Run an operation that writes a journal; keep the book, and hold it to what it says."""
        before, served, seen = self._journals(), self.serves(), self._picture()
        outcomes: list[str] = []
        died, error = self._run(lambda station: outcomes.append(run(station)), trouble)
        promoted = any(committed(self.site, swap) for swap in self._journals() - before)
        assert keep or not promoted
        if promoted:
            self.book.promote(lane)
        quiet = not died and trouble.meanwhile is None
        if outcomes:
            assert (outcomes[0] == "promoted") == promoted
            serves = self.serves() or self._strange or not self._is_owed()
            assert serves or not quiet, f"{outcomes[0]}, and nothing serves"
        if quiet and error is not None and error.exit_code is ExitCode.REFUSED:
            assert self._picture() == seen, f"refused, and something was touched: {error}"
        if quiet and served and self._is_owed() and not self.serves():
            assert error is not None
            assert error.exit_code in (ExitCode.DARK, ExitCode.UNFINISHED), f"nothing serves and it said {error!r}"
        return error

    def _run(self, run: Callable[[Station], object], trouble: Trouble) -> tuple[bool, LaneError | None]:
        """Run a command in a life of its own; return whether it died, and the error that it ended with."""
        self.commands += 1
        life = Life(*trouble.death)
        live(life, self.patch)
        if trouble.away is not None:
            at, seconds = trouble.away
            life.meanwhile[at] = lambda: self._goes_away(seconds)
        if trouble.meanwhile is not None:
            at, what, pick = trouble.meanwhile
            life.meanwhile[at] = lambda: self._meanwhile(life, what, pick)
        if trouble.asked is not None:
            life.meanwhile[trouble.asked] = self._press
        if any(fault.call == "set_restart" and not fault.after for fault in trouble.faults):
            self._policies = False
        engine = ModelEngine(self, life)
        engine.faults += [replace(fault) for fault in trouble.faults]
        error: LaneError | None = None
        try:
            run(self.site.station("model", engine=engine, boot_id=f"boot-{self.boot}"))
        except Died:
            pass
        except LaneError as raised:
            error = raised
        live(Life(), self.patch)
        self.log.append(f"  -> {'died' if life.dead else error or 'ok'}")
        assert Lock(self.site.station().state.lock).holder() is None
        return life.dead, error

    def _goes_away(self, seconds: float) -> None:
        self.away_until = self.site.clock.monotonic() + seconds

    def _meanwhile(self, life: Life, what: str, pick: int) -> None:
        self.happens(what, pick)
        life.dead = life.dead or what == "reboot"

    def _interrupts(self) -> Interrupts:
        self._listening = Interrupts()
        return self._listening

    def _press(self) -> None:
        self._listening.asked = signal.SIGINT

    # What is seen, without lanectl's own eyes where that matters

    def serves(self) -> bool:
        """Whether what the book says is production runs and answers."""
        current = self._current()
        if current is None or current.label != self.book.current:
            return False
        return len(self._running(current)) == len(current.services) and self.site.ask() is not None

    def _is_owed(self) -> bool:
        return bool(self.book.current) and self.book.desired == SERVING

    def _current(self) -> Owed | None:
        return self.site.station().production().current

    def _running(self, lane: Owed | list[FakeContainer] | None) -> list[str]:
        if isinstance(lane, list):
            return [one.name for one in lane if one.running]
        found = [self.site.world.find(one.container_id) for one in (lane.services if lane else ())]
        return [one.name for one in found if one is not None and one.running]

    def _is_candidate(self, one: FakeContainer) -> bool:
        return ".candidate." in one.born_name and one.body["Labels"]["lanectl.swap"] not in self._committed()

    def _strays(self) -> list[FakeContainer]:
        return [one for one in self.site.world.containers.values() if self._is_candidate(one)]

    def _owed_ids(self) -> frozenset[str]:
        """The ids of what is or may be owed: production's, and what was promoted and is not recorded yet."""
        current = self._current()
        ids = current.container_ids if current else frozenset()
        for journal in self._open():
            for line in journal.split(b"\n")[:-1]:
                if b'"kind":"committed"' in line:
                    target = json.loads(line)["data"]["target"]
                    ids |= {service["container_id"] for service in target["services"]}
        return ids

    def _missing(self) -> set[str]:
        """The images of owed containers that are gone with them."""
        if not self._is_owed():
            return set()
        target = self._target()
        return {one.image_id for one in target if not self._has(one) and one.image_id not in self.site.world.images}

    def _target(self) -> tuple[OwedService, ...]:
        current = self._current()
        return current.services if current else ()

    def _has(self, service: OwedService) -> bool:
        return self.site.world.find(service.container_id) is not None

    def _journals(self) -> set[str]:
        return set(self.site.station().state.swap_ids())

    def _committed(self) -> set[str]:
        return {swap for swap in self._journals() if committed(self.site, swap)}

    def _open(self) -> list[bytes]:
        """The journals of swaps that are not closed."""
        journals = (self.site.station().state.journal(swap).read_bytes() for swap in self._journals())
        return [
            journal for journal in journals if b"\n" in journal and b'"kind":"closed"' not in journal.split(b"\n")[-2]
        ]

    def _picture(self) -> list[tuple[Any, ...]]:
        """Who runs, under which name, since when."""
        found = self.site.world.containers.values()
        return sorted((one.name, one.id, one.status, one.started_at, str(one.restart)) for one in found)

    def _on_disk(self, key: str) -> Any:
        path = self.site.station().state.production
        return json.loads(path.read_bytes())[key] if path.exists() else None

    def _desired_is_either(self) -> None:
        """A command that did not end well may have recorded its wish or not: what is on the disk counts."""
        desired = self._on_disk("desired") or SERVING
        self._unfinished_stop = self._unfinished_stop or (desired == STOPPED and self.book.desired == SERVING)
        self.book.desired = desired

    def _tell(self, *words: object) -> None:
        self.log.append(" ".join(map(str, words)))


def _picked(model: Model, pick: int, fits: Callable[[FakeContainer], bool]) -> FakeContainer | None:
    found = [one for one in model.site.world.containers.values() if fits(one)]
    return found[pick % len(found)] if found else None


def _removes(model: Model, pick: int) -> None:
    one = _picked(model, pick, lambda one: True)
    if one is not None:
        model.site.engine.remove(one.id)


def _ends(model: Model, pick: int) -> None:
    one = _picked(model, pick, lambda one: one.running)
    if one is not None:
        model.site.world.end(one, 137)


def _pauses(model: Model, pick: int) -> None:
    one = _picked(model, pick, lambda one: one.status == "running")
    if one is not None:
        model.site.world.freeze(one)


def _starts(model: Model, pick: int) -> None:
    one = _picked(model, pick, lambda one: one.status in ("exited", "created"))
    if one is not None:
        model.site.world.start(one)


def _renames(model: Model, pick: int) -> None:
    one = _picked(model, pick, lambda one: one.status in ("exited", "created"))
    if one is not None:
        one.name = f"renamed-{one.id[:12]}"
        model.aside.add(one.id)


def _prunes(model: Model, pick: int) -> None:
    """A newer image took every tag but lanectl's, and somebody removed what has none and is used by nobody."""
    world = model.site.world
    used = {one.image_id for one in world.containers.values()}
    for image in tuple(world.images.values()):
        kept = tuple(tag for tag in image.tags if tag.startswith(KEEP_TAG))
        if kept or image.id in used:
            world.images[image.id] = Image(image.id, (), kept)
        else:
            del world.images[image.id]


def _reboots(model: Model, pick: int) -> None:
    model.boot += 1
    model.site.world.restart_machine()


def _listens(model: Model, pick: int) -> None:
    """A stranger takes a port, for good or for a while."""
    port = (model.site.public, model.site.trial)[pick % 2]
    stranger = Listener(port, frozenset({4711}), "nginx", Program())
    model.site.world.strangers.append(stranger)
    until = model.site.clock.monotonic() + (20.0 if pick % 3 else LONG_S)

    def leaves() -> None:
        if model.site.clock.monotonic() > until and stranger in model.site.world.strangers:
            model.site.world.strangers.remove(stranger)

    model.site.clock.after_sleep.append(leaves)


def _strands(model: Model, pick: int) -> None:
    """Memory of the GPU stays in use though nobody has it."""
    model.site.world.strand(f"{KIND}={NAMES['gb300'].partition('=')[2]}", 50_000, 5.0 if pick % 2 else LONG_S)


def _fills(model: Model, pick: int) -> None:
    model.disk.fill()


def _clears(model: Model, pick: int) -> None:
    model.disk.full = False


_HAPPENS: dict[str, Callable[[Model, int], None]] = {
    "removed": _removes,
    "ends": _ends,
    "paused": _pauses,
    "started": _starts,
    "renamed": _renames,
    "pruned": _prunes,
    "reboot": _reboots,
    "engine restarts": lambda model, pick: model.site.world.restart_machine(),
    "port taken": _listens,
    "memory stays": _strands,
    "disk full": _fills,
    "disk has room": _clears,
}
HAPPENINGS = tuple(_HAPPENS)
