"""A real disk that is full from one moment of a swap on: nothing is touched, or production is back all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lanectl.core.journal import Kind
from lanectl.errors import ExitCode
from lanectl.store.audit import entries
from lanectl.store.journal import RESERVE_NAME, load
from tests.crash.invariant import armed, holds, production_is
from tests.support.fake_engine import ENGINE_ID
from tests.support.fake_station import FakeSite
from tests.support.mortal import Life, MortalEngine, live
from tests.support.small_disk import fill, small_disk

PAGES = 128  # of 64 KiB: room for the site, one swap's reserved megabyte, and a little more
EVENTS = 40  # the swap has some 50 records and effects; by then it is on its way back
EVERY = 3  # a mount for each: every third moment, in turn with the wish


def fills_up(folder: Path, at: int, monkeypatch: pytest.MonkeyPatch, **wish: Any) -> None:
    """Swap on a disk that fills up right before the `at`-th record or effect; assert what must hold then and later."""
    with small_disk(folder, PAGES) as disk:
        if disk is None:
            pytest.skip("needs root, to mount a small file system")
        live(Life(), monkeypatch)
        site = FakeSite(disk / "site")
        site.say(thresholds={"disk_free": "1MiB"})
        site.produce(restart="unless-stopped")
        production = site.seen("prod")
        site.lane("cand")
        life = Life()
        live(life, monkeypatch)
        life.meanwhile[at] = lambda: fill(disk)
        before = set(site.station().state.swap_ids())
        ended = site.swap("cand", station=site.station(engine=MortalEngine(site.world, life, ENGINE_ID)), **wish)
        assert life.events >= at
        (swap,) = set(site.station().state.swap_ids()) - before
        if armed(site, swap):
            assert ended.exit_code in (ExitCode.OK, ExitCode.CANDIDATE), ended
            assert load(site.station().state.journal(swap)).closed is not None, "its space was reserved"
            assert site.record(Kind.CLOSED) is not None
        else:
            assert ended.exit_code is ExitCode.REFUSED, ended
            assert site.seen("prod") == production
        assert site.ask() is not None
        assert not (site.station().state.swap(swap) / RESERVE_NAME).exists()
        (disk / "filler").unlink()
        site.recover()
        holds(site)
        production_is(site, *(("cand", "prod") if ended.outcome == "promoted" else ("prod", "")))


@pytest.mark.parametrize("wish", [{}, {"keep": True}, {"measure": True}], ids=["proven", "kept", "measured"])
def test_T47_production_is_back_although_the_disk_is_full(
    tmp_path: Path, wish: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = 1 + len(wish) + wish.get("keep", 0)
    for at in range(first, EVENTS, EVERY):
        fills_up(tmp_path / str(at), at, monkeypatch, **wish)


@pytest.mark.slow
@pytest.mark.parametrize("wish", [{}, {"keep": True}, {"measure": True}], ids=["proven", "kept", "measured"])
def test_T47_production_is_back_whenever_the_disk_became_full(
    tmp_path: Path, wish: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(1, EVENTS):
        fills_up(tmp_path / str(at), at, monkeypatch, **wish)


def test_T47_a_swap_that_cannot_write_its_intent_is_refused_and_a_restore_goes_on_without(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", PAGES) as disk:
        if disk is None:
            pytest.skip("needs root, to mount a small file system")
        site = FakeSite(disk / "site")
        site.say(thresholds={"disk_free": "1MiB"})
        site.produce()
        production = site.seen("prod")
        site.lane("cand")
        filler = fill(disk)
        written = len(list(entries(site.station().state.audit)))
        # A line of the audit may still fit into its last page: many are refused at the first that does not.
        refused = next(ended for ended in (site.swap("cand") for _ in range(1000)) if ended.error is not None)
        assert refused.exit_code is ExitCode.REFUSED
        assert "nothing was started" in refused.words
        assert "free some space" in refused.words
        assert site.seen("prod") == production
        assert len(list(entries(site.station().state.audit))) >= written
        site.world.restart_machine()
        assert site.ask() is None
        assert site.recover().swaps, "production is owed, whatever can be written"
        assert site.ask() is not None
        filler.unlink()
        site.recover()
        holds(site)
