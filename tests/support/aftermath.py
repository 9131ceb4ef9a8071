"""What must hold once a swap is over, however it ended: production serves as before and nothing else is left."""

from __future__ import annotations

from collections.abc import Iterable

from lanectl.core.container import Container
from lanectl.store.audit import INTENT, OUTCOME, entries, verify
from lanectl.store.journal import load, records
from lanectl.store.lock import Lock
from tests.support.station import MODEL, SwapSite

RUNS_ANEW = ("status", "pid", "started_at", "finished_at", "exit_code")  # what a stop and a start change


def is_back(site: SwapSite, *before: Container, beside: Iterable[str] = (), killed: int = 0) -> None:
    """Assert that production's containers are the very same as before, serving, and alone.

    `beside`: names of other containers that are meant to be there. `killed`: how many commands were killed.
    """
    for one in before:
        now = site.seen(one.id)
        changed = {name: getattr(now, name) for name in Container.__slots__ if getattr(now, name) != getattr(one, name)}
        assert set(changed) <= set(RUNS_ANEW), (one, changed)
    serves_alone(site, *(one.name for one in before), beside=beside, killed=killed)


def serves_alone(site: SwapSite, *names: str, beside: Iterable[str] = (), killed: int = 0) -> None:
    """Assert that the containers of these names run, are what production.json says, answer a real request, that
    nothing else is left, and that every record is whole."""
    assert {name for name, one in site.containers().items() if one.running} == {*names, *beside}
    left = {name for name in site.containers() if name not in (*names, *beside)}
    assert not [name for name in left if ".parked." not in name], left
    assert site.ask() == MODEL
    current = site.station().production().current
    assert current is not None
    assert {service.container_name: service.container_id for service in current.services} == {
        name: site.seen(name).id for name in names
    }
    records_are_whole(site, killed)


def untouched(site: SwapSite, *before: Container, beside: Iterable[str] = ()) -> None:
    """Assert that production was not touched at all: the same containers in the same run."""
    is_back(site, *before, beside=beside)
    assert [site.seen(one.id) for one in before] == list(before)


def records_are_whole(site: SwapSite, killed: int = 0) -> None:
    """Assert that no swap is open, the lock is free, and the audit's chain holds, with an outcome for every intent but
    those of at most so many commands that were killed (one may have written it just before)."""
    station = site.station()
    opened = [swap for swap in station.state.swap_ids() if load(station.state.journal(swap)).closed is None]
    assert not opened, [records(station.state.journal(swap))[-1] for swap in opened]
    assert Lock(station.state.lock).holder() is None
    lines, problems = verify(station.state.audit)
    assert lines > 0
    assert not problems
    events = [entry["event"] for entry in entries(station.state.audit)]
    assert 0 <= events.count(INTENT) - events.count(OUTCOME) <= killed, events
