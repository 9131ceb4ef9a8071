"""Death at every record of every kind of operation: recovered once, twice, and itself interrupted at each record."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.actions.progress import Silent
from lanectl.actions.recover import recover
from tests.crash.invariant import holds, picture
from tests.crash.worlds import KINDS, run
from tests.support.fake_engine import ENGINE_ID
from tests.support.fake_station import FakeSite
from tests.support.mortal import AFTER, HOWS, TORN, Died, Life, MortalEngine, live

# Every record is durable before the next step, so the matrix spends its time in fsync: in memory it is quick.
QUICK_DISK = Path("/dev/shm")
# In `make test` a death that is followed by an interrupted recovery is sampled: every DOUBLE_EVERY-th record of each
# kind, the recovery dying at its first DOUBLE_DEPTH records. test-full takes all of both.
DOUBLE_EVERY = 4
DOUBLE_DEPTH = 8
RECORDS_AT_MOST = 80  # a bound for the loop, far above any operation here


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder per case, on a file system in memory where there is one."""
    root = Path(tempfile.mkdtemp(dir=QUICK_DISK if QUICK_DISK.is_dir() else None))
    yield root
    shutil.rmtree(root, ignore_errors=True)


def a_world(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSite:
    """Make the operation's world in a life of its own, whatever became of the one before."""
    live(Life(), monkeypatch)
    return KINDS[name].make(folder)


def dies_at(site: FakeSite, name: str, at: int, how: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the operation in a life that ends at its `at`-th record; return whether it got that far."""
    life = Life(at, how)
    live(life, monkeypatch)
    try:
        run(KINDS[name], site.station("op", engine=MortalEngine(site.world, life, ENGINE_ID)))
    except Died:
        pass
    return life.dead


def recovers(site: FakeSite, monkeypatch: pytest.MonkeyPatch, at: int = 0, how: str = AFTER) -> bool:
    """Recover in a life that ends at its `at`-th record (0: it does not); return whether it died."""
    life = Life(at, how)
    live(life, monkeypatch)
    try:
        recover(site.station("recover", engine=MortalEngine(site.world, life, ENGINE_ID)), Silent())
    except Died:
        pass
    return life.dead


@pytest.mark.parametrize("name", KINDS)
def test_a_death_at_any_record_is_recovered_once_and_for_all(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = 0
    for at, how in itertools.product(range(1, RECORDS_AT_MOST), HOWS):
        site = a_world(name, folder / f"{at}-{how}", monkeypatch)
        if not dies_at(site, name, at, how, monkeypatch):
            break
        deaths += 1
        assert not recovers(site, monkeypatch)
        holds(site)
        before = picture(site)
        recovers(site, monkeypatch)
        assert picture(site) == before, f"recovering a second time changed something after death at {at} {how}"
    assert deaths >= 3 * 5, f"{name} wrote only {deaths // 3} records"


def interrupted_recoveries(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, every: int, depth: int) -> int:
    """The operation dies at every `every`-th record, its recovery at each of its first `depth`; return how many."""
    done = 0
    for at in range(2, RECORDS_AT_MOST, every):
        for second in range(1, depth + 1):
            how = HOWS[(at + second) % len(HOWS)]
            site = a_world(name, folder / f"{at}-{second}", monkeypatch)
            if not dies_at(site, name, at, TORN if second % 2 else AFTER, monkeypatch):
                return done
            if not recovers(site, monkeypatch, second, how):
                break
            done += 1
            assert not recovers(site, monkeypatch)
            holds(site)
    return done


@pytest.mark.parametrize("name", KINDS)
def test_a_recovery_may_die_at_any_of_its_records(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert interrupted_recoveries(name, folder, monkeypatch, every=DOUBLE_EVERY, depth=DOUBLE_DEPTH) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_recovery_may_die_at_any_of_its_records(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert interrupted_recoveries(name, folder, monkeypatch, every=1, depth=RECORDS_AT_MOST) > 0
