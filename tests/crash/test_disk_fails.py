"""Every write of an operation fails in turn: nothing is touched before production is owed; then it comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanectl.actions.progress import Silent
from lanectl.actions.recover import recover
from lanectl.core.container import Container
from lanectl.errors import ExitCode, LaneError
from tests.crash.invariant import armed, committed, holds, production_is, untouched
from tests.crash.worlds import KINDS, Kind
from tests.support.fake_engine import ENGINE_ID
from tests.support.fake_station import FakeSite
from tests.support.faulty_disk import DIES, FOR_GOOD, ONCE, SHORT, TORN, FaultyDisk
from tests.support.mortal import Died, Life, MortalEngine, live

# `make test` takes every EVERY-th operation, another one for each kind and fault; test-full takes all.
EVERY = 6
MOST = 2000  # far above the writes of any operation
OPERATIONS = ("measured", "kept", "rollback", "restart", "start", "restart from DARK")
WAYS = (ONCE, FOR_GOOD, SHORT, TORN, DIES)


class Case:
    """One operation on a fresh world whose disk fails, and what must be true of it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.patch = pytest.MonkeyPatch()
        live(Life(), self.patch)
        self.kind: Kind = KINDS[name]
        self.site: FakeSite = self.kind.make(folder)
        self.before = set(self.site.station().state.swap_ids())
        self.ran = self._running()
        self.error: LaneError | None = None
        self.exit_code = ExitCode.OK

    def runs(self, at: int, how: str) -> FaultyDisk:
        """Run it with a disk on which the `at`-th operation fails."""
        life = Life()
        live(life, self.patch)
        disk = FaultyDisk(self.patch, self.site.root, at, how)
        disk.on_death = lambda: setattr(life, "dead", True)
        engine = MortalEngine(self.site.world, life, ENGINE_ID)
        try:
            report = self.kind.run(self.site.station("op", engine=engine, **self.kind.parts(self.site)))
            self.exit_code = report.exit_code
        except LaneError as error:
            self.error, self.exit_code = error, error.exit_code
        except Died:
            pass
        return disk

    def is_right(self, how: str) -> None:
        """Assert what must hold while the disk still fails."""
        if how == DIES:
            return
        if how == SHORT:
            assert self.error is None, self.error
        if self.exit_code is ExitCode.REFUSED:
            untouched(self.site, self.ran)
            return
        assert any(armed(self.site, swap) for swap in self._mine()), repr(self.error)
        assert self.error is None or self.error.exit_code is ExitCode.UNFINISHED, self.error
        assert self.site.ask() is not None, f"nothing serves: {self.error}"
        assert len(self._running()) == 1

    def ends_well(self) -> None:
        """Assert that a recovery closes everything, whoever recovered before it."""
        live(Life(), self.patch)
        if self.kind.cure is not None:
            self.kind.cure(self.site)
        recover(self.site.station("recover"), Silent())
        holds(self.site)
        promoted = any(committed(self.site, swap) for swap in self._mine())
        labels = self.kind.committed if promoted else (self.kind.current, self.kind.previous)
        assert labels is not None
        production_is(self.site, *labels)
        left = [path.name for path in self.site.root.rglob("*") if path.name.endswith(".tmp") or path.name == "reserve"]
        assert not left or self.error is None, left

    def _mine(self) -> set[str]:
        """The journals of this operation that were begun."""
        state = self.site.station().state
        return {swap for swap in set(state.swap_ids()) - self.before if state.journal(swap).stat().st_size}

    def _running(self) -> list[Container]:
        return [one for one in self.site.containers().values() if one.running]


def fails_at(name: str, how: str, at: int, folder: Path) -> bool:
    """Have one operation of the disk fail; return whether it was reached."""
    case = Case(name, folder)
    try:
        disk = case.runs(at, how)
        if not disk.struck:
            return False
        case.is_right(how)
        if how == FOR_GOOD:
            with pytest.raises(LaneError):  # it cannot even say so in the audit, and changes nothing
                recover(case.site.station("recover"), Silent())
            case.is_right(how)
        disk.heal()
        case.ends_well()
        return True
    except AssertionError as error:
        raise AssertionError(f"{how} at {at}, {disk.operations[at - 1]}: {error}") from error
    finally:
        case.patch.undo()


def all_fail(name: str, how: str, ats: range, folder: Path) -> int:
    """Have each of these operations of the disk fail, each in a fresh world; return how many there are."""
    for number, at in enumerate(ats):
        if not fails_at(name, how, at, folder / str(at)):
            return number
    raise AssertionError(f"{name} does not end")


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_write_that_fails_costs_no_production(name: str, how: str, folder: Path) -> None:
    first = 1 + (OPERATIONS.index(name) + WAYS.index(how)) % EVERY
    assert all_fail(name, how, range(first, MOST, EVERY), folder) > 5


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_write_that_fails_costs_production(name: str, how: str, folder: Path) -> None:
    assert all_fail(name, how, range(1, MOST), folder) > 30
