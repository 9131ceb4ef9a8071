"""Death at every record and after every effect of every kind of operation: recovered once, twice, and itself
interrupted at each record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lanectl.actions.progress import Silent
from lanectl.actions.recover import recover
from lanectl.core.container import Container
from lanectl.errors import Dark
from tests.crash.invariant import (
    armed,
    committed,
    holds,
    kinds_of,
    picture,
    production_is,
    same_containers,
    untouched,
)
from tests.crash.worlds import KINDS, Kind, run
from tests.support.fake_engine import ENGINE_ID
from tests.support.fake_station import FakeSite
from tests.support.mortal import AFTER, BEFORE, EFFECT, TORN, Died, Life, MortalEngine, live

# `make test` takes, of every kind, a death after every record and after every effect, beginning with the record at
# which something first went wrong (what comes before it is another kind's); every TORN_EVERY-th record is also torn,
# another one for each kind. A death that is followed by an interrupted recovery is sampled: every DOUBLE_EVERY-th of
# these, the recovery dying at every SECOND_EVERY-th of its records. test-full takes all of it, and deaths before the
# record, too.
TORN_EVERY = 4
DOUBLE_EVERY = 10
SECOND_EVERY = 3
MOST = 200  # a bound for the loop, far above the records of any operation here

Death = tuple[int, str]


class Case:
    """One world and an operation on it that may die, and its recovery that may die too."""

    def __init__(self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        monkeypatch.setattr("lanectl.actions.preflight._WATCHES", ())  # notices stop nothing, and cost a look at /proc
        self.kind: Kind = KINDS[name]
        live(Life(), monkeypatch)
        self.site: FakeSite = self.kind.make(folder)
        self.before = self.site.station().state.swap_ids()
        self.ran = tuple(self._running())

    def dies(self, at: int = 0, how: str = AFTER) -> Life:
        """Run the operation in a life that ends at `at` (0: it does not); return the life."""
        life = Life(at, how)
        live(life, self._patch)
        try:
            run(self.kind, self.site, MortalEngine(self.site.world, life, ENGINE_ID))
        except Died:
            pass
        return life

    def recovers(self, at: int = 0, how: str = AFTER) -> Life:
        """Recover in a life that ends at `at` (0: it does not); return the life. It starts nothing but what is owed."""
        life = Life(at, how)
        live(life, self._patch)
        engine = MortalEngine(self.site.world, life, ENGINE_ID)
        try:
            recover(self.site.station("recover", engine=engine), Silent())
        except Died:
            return life
        except Dark:
            assert self.kind.cure is not None
            self.kind.cure(self.site)
            return self.recovers()
        current = self.site.station().production().current
        started = {ref for call, ref in engine.calls if call == "start"}
        assert started <= (current.container_ids if current else frozenset()), "a recovery went forward"
        return life

    def well(self) -> None:
        """Assert what must hold once a recovery has ended."""
        holds(self.site)
        mine = [swap for swap in self.site.station().state.swap_ids() if swap not in self.before]
        promoted = any(committed(self.site, swap) for swap in mine)
        if promoted:
            assert self.kind.committed is not None
            production_is(self.site, *self.kind.committed)
        else:
            production_is(self.site, self.kind.current, self.kind.previous)
        if not self.kind.remade:
            same_containers(self.site, self.ran)
        if not any(armed(self.site, swap) for swap in mine):
            untouched(self.site, self.ran)

    def _running(self) -> Iterator[Container]:
        """Production's containers that run before the operation."""
        current = self.site.station().production().current
        ids = current.container_ids if current else frozenset()
        return (one for one in self.site.containers().values() if one.id in ids and one.running)


def deaths(name: str, life: Life, *, every: bool) -> list[Death]:
    """Given a life in which the operation was not disturbed, return when to die; `every`: not only a sample."""
    kinds = kinds_of(b"".join(line + b"\n" for line in life.lines))
    first = 1 + (kinds.index("failed") if "failed" in kinds and not every else 0)
    records = range(first, len(kinds) + 1)
    shift = list(KINDS).index(name) % TORN_EVERY
    torn = records if every else [at for at in records if at % TORN_EVERY == shift]
    found = [(at, AFTER) for at in records] + [(at, TORN) for at in torn]
    found += [(at, BEFORE) for at in records if every]
    return found + [(at, EFFECT) for at in range(1, life.effects + 1)]


def plan(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, every: bool) -> list[Death]:
    """Run the operation undisturbed, see that it ended well, and return when to die in it."""
    case = Case(name, folder / "undisturbed", monkeypatch)
    life = case.dies()
    assert not life.dead
    assert case.site.records()[-1].data == {"outcome": case.kind.outcome}
    case.well()
    return deaths(name, life, every=every)


def all_die(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, whens: Sequence[Death]) -> None:
    for at, how in whens:
        case = Case(name, folder / f"{at}-{how}", monkeypatch)
        assert case.dies(at, how).dead
        assert not case.recovers().dead
        case.well()
        before = picture(case.site)
        case.recovers()
        assert picture(case.site) == before, f"recovering a second time changed something after death at {at} {how}"


def recoveries_die(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, whens: Sequence[Death], step: int) -> int:
    """The operation dies at each of `whens`, its recovery at every `step`-th record and effect; return how many did."""
    done = 0
    for index, (at, how) in enumerate(whens):
        for second in ((n, kind) for kind in (TORN, AFTER, EFFECT) for n in range(1 + index % step, MOST, step)):
            case = Case(name, folder / f"{at}-{how}-{second[0]}-{second[1]}", monkeypatch)
            assert case.dies(at, how).dead
            if not case.recovers(*second).dead:
                break
            done += 1
            assert not case.recovers().dead
            case.well()
    return done


@pytest.mark.parametrize("name", KINDS)
def test_a_death_at_any_record_is_recovered_once_and_for_all(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whens = plan(name, folder, monkeypatch, every=False)
    assert len(whens) >= 5
    all_die(name, folder, monkeypatch, whens)


@pytest.mark.parametrize("name", KINDS)
def test_a_recovery_may_die_at_any_of_its_records(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whens = plan(name, folder, monkeypatch, every=False)[::DOUBLE_EVERY]
    assert recoveries_die(name, folder, monkeypatch, whens, SECOND_EVERY) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_death_is_recovered_once_and_for_all(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_die(name, folder, monkeypatch, plan(name, folder, monkeypatch, every=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_recovery_may_die_at_any_of_its_records(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recoveries_die(name, folder, monkeypatch, plan(name, folder, monkeypatch, every=True), 1) > 0
