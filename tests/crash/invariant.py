"""What must hold after a death and a recovery, whenever the death came."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from functools import cache

from lanectl.core.container import LABEL_LANE, LABEL_SWAP, Container
from lanectl.core.journal import open_states
from lanectl.core.lane import Restart
from lanectl.core.owed import Owed, Production
from lanectl.store.audit import verify
from lanectl.store.journal import load_all
from lanectl.store.lock import Lock
from tests.support.fake_station import FakeSite


def holds(site: FakeSite, aside: Collection[str] = (), *, policies: bool = True) -> None:
    """Exactly what is owed runs, proven, under its own names and policies; nothing else runs or is left of a candidate;
    every journal is closed, the audit's chain whole, the lock free. `aside`: ids of containers that are a person's.
    `policies` False: the engine refused to set a restart policy, which stops nothing and is logged."""
    station = site.station()
    states = load_all(station.state.journal(swap) for swap in station.state.swap_ids())
    assert open_states(states) == ()
    assert Lock(station.state.lock).holder() is None
    _, problems = verify(station.state.audit)
    assert not problems, problems
    production = station.production()
    owed = production.owed
    running = {name for name, container in site.containers().items() if container.active}
    assert running == (_names(owed) if owed else set()), (running, owed)
    if owed is not None:
        assert site.ask() == owed.served_model
        _is_itself(site, owed, policies)
    no_orphans(site, production, aside)


def production_is(site: FakeSite, current: str, previous: str) -> None:
    """Assert which lanes production is and was, by label; "" for none."""
    production = site.station().production()
    labels = tuple(lane.label if lane else "" for lane in (production.current, production.previous))
    assert labels == (current, previous)


def no_orphans(site: FakeSite, production: Production, aside: Collection[str]) -> None:
    """Every container is production's or parked; what a swap made and did not promote is gone."""
    ours = set().union(*(lane.container_ids for lane in (production.current, production.previous) if lane))
    uncommitted = {swap for swap in site.station().state.swap_ids() if not committed(site, swap)}
    for name, container in site.containers().items():
        assert container.labels.get(LABEL_SWAP) not in uncommitted, f"{name} is left of a swap that promoted nothing"
        assert ".candidate." not in name, name
        if container.id not in ours and container.id not in aside:
            assert ".parked." in name, f"{name} is nobody's"
        if ".parked." in name:
            assert container.restart == Restart(), f"{name} would wake by itself"


def committed(site: FakeSite, swap: str) -> bool:
    """Whether a swap's journal holds a COMMITTED record: read from its text, not by lanectl's own fold."""
    return "committed" in kinds_of(site.station().state.journal(swap).read_bytes())


def armed(site: FakeSite, swap: str) -> bool:
    """Whether a swap's journal holds an ARMED record."""
    return "armed" in kinds_of(site.station().state.journal(swap).read_bytes())


@cache
def kinds_of(journal: bytes) -> tuple[str, ...]:
    """Given a journal's bytes, return the kinds of its whole lines."""
    return tuple(str(json.loads(line)["kind"]) for line in journal.split(b"\n")[:-1])


def _names(owed: Owed) -> set[str]:
    return {service.container_name for service in owed.services}


def _is_itself(site: FakeSite, owed: Owed, policies: bool) -> None:
    for service in owed.services:
        container = site.seen(service.container_name)
        assert container.id == service.container_id
        assert container.restart == service.restart or not policies
        assert container.image_id == service.image_id
        assert container.labels.get(LABEL_LANE) == (None if owed.adopted else owed.label)


def same_containers(site: FakeSite, before: Iterable[Container]) -> None:
    """Production's containers of before are still there: the very same, not made again."""
    for container in before:
        assert site.engine.inspect(container.id) is not None, f"{container.name} was made again"


def untouched(site: FakeSite, before: Iterable[Container]) -> None:
    """Nothing of this was so much as stopped."""
    for container in before:
        assert site.seen(container.id) == container


def picture(site: FakeSite) -> tuple[object, ...]:
    """What a second recovery must leave as it is: who runs since when under which name, and what is recorded."""
    station = site.station()
    containers = sorted((one.name, one.id, one.status, one.started_at) for one in site.containers().values())
    journals = {swap: station.state.journal(swap).read_bytes() for swap in station.state.swap_ids()}
    return containers, journals, station.state.production.exists() and station.state.production.read_bytes()
