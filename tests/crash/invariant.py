"""What must hold after a death and a recovery, whenever the death came."""

from __future__ import annotations

from lanectl.core.journal import open_states
from lanectl.core.owed import Owed
from lanectl.store.audit import verify
from lanectl.store.journal import load_all
from lanectl.store.lock import Lock
from tests.support.fake_station import FakeSite


def holds(site: FakeSite) -> None:
    """Exactly what is owed runs, proven, under its own names and policies; nothing else runs or is left of a candidate;
    every journal is closed, the audit's chain whole, the lock free."""
    station = site.station()
    states = load_all(station.state.journal(swap) for swap in station.state.swap_ids())
    assert open_states(states) == ()
    assert Lock(station.state.lock).holder() is None
    _, problems = verify(station.state.audit)
    assert not problems, problems
    owed = station.production().owed
    running = {name for name, container in site.containers().items() if container.running}
    assert running == (_names(owed) if owed else set()), (running, owed)
    leftovers = [name for name in site.containers() if ".candidate." in name]
    assert not leftovers, leftovers
    if owed is not None:
        assert site.ask() == owed.served_model
        _is_itself(site, owed)


def _names(owed: Owed) -> set[str]:
    return {service.container_name for service in owed.services}


def _is_itself(site: FakeSite, owed: Owed) -> None:
    for service in owed.services:
        container = site.seen(service.container_name)
        assert container.id == service.container_id
        assert container.restart == service.restart


def picture(site: FakeSite) -> tuple[object, ...]:
    """What a second recovery must leave as it is: who runs since when under which name, and what is recorded."""
    station = site.station()
    containers = sorted((one.name, one.id, one.status, one.started_at) for one in site.containers().values())
    journals = {swap: station.state.journal(swap).read_bytes() for swap in station.state.swap_ids()}
    return containers, journals, station.state.production.exists() and station.state.production.read_bytes()
