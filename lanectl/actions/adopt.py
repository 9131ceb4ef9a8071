"""`lanectl adopt`: record the production that an operator already runs by hand. Nothing about it is changed.

It has no labels and can get none, so it is found by container name and recorded by id. What differs from the lane's
spec is shown, not refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lanectl.actions import engine_hints
from lanectl.actions.difference import Difference, differences
from lanectl.actions.look import look, served
from lanectl.actions.operation import conclude, intend, locked
from lanectl.actions.station import Station
from lanectl.actions.unfinished import refuse_unfinished
from lanectl.core.container import Container
from lanectl.core.lane import Lane, Restart
from lanectl.core.owed import Desired, Owed, owe, promise
from lanectl.engine.create import create_args
from lanectl.errors import ExitCode, LaneError
from lanectl.site.load import load_lane


@dataclass(frozen=True, slots=True)
class Adopted:
    """What was adopted: the lane, its containers, what differs from the spec, and whether it is proven serving."""

    owed: Owed
    containers: tuple[Container, ...]
    differences: tuple[Difference, ...]
    serving: bool
    detail: str


def lane_of(station: Station, names: Sequence[str], label: str | None) -> Lane:
    """Return the lane these containers are: the named one, else the one whose container names they are.

    Raise `LaneError` (exit 2) when no lane, or more than one, has them.
    """
    if label is not None:
        return load_lane(station.site, label, public=True)
    fitting = []
    for name in station.site.lanes:
        lane = load_lane(station.site, name, public=True)
        if not names or {service.container_name for service in lane.services} == set(names):
            fitting.append(lane)
    seeded = [lane for lane in fitting if lane.name == station.site.production]
    if seeded or len(fitting) == 1:
        return (seeded or fitting)[0]
    choice = ", ".join(lane.name for lane in fitting) or "none"
    raise LaneError(
        f"which lane is {', '.join(names) or 'production'}? Lanes with these container names: {choice}",
        "name it: `lanectl adopt NAME... --lane LANE`, or set `production:` in station.yaml",
        ExitCode.USAGE,
    )


def adopt(station: Station, names: Sequence[str], label: str | None) -> Adopted:
    """Record running containers as production. Raise `Busy`, `Unfinished`, `LaneError` (exit 3: it does not run)."""
    with locked(station):
        refuse_unfinished(station)
        lane = lane_of(station, names, label)
        intend(station, "adopt", {"lane": lane.label, "containers": list(names)})
        adopted = _adopt(station, lane, names)
        before = station.production()
        previous = before.current if before.current and before.current.label != lane.label else before.previous
        station.record_production(
            replace(before, current=adopted.owed, previous=previous, desired=Desired.SERVING, tripped=None)
        )
        _let_rest(station, before.current, adopted.owed)
        conclude(station, "adopt", {"lane": lane.label, "ids": sorted(adopted.owed.container_ids)})
        return adopted


def _let_rest(station: Station, former: Owed | None, now: Owed) -> None:
    """Keep what was production from waking beside what is: its restart policy would start it at the next reboot."""
    for service in former.services if former else ():
        if service.container_id in now.container_ids:
            continue
        try:
            container = station.engine.inspect(service.container_id)
            if container is not None and not container.active:
                station.engine.set_restart(container.id, Restart())
        except LaneError as error:
            station.log.warning("it may start by itself", container=service.container_name, error=error.message)


def _adopt(station: Station, lane: Lane, names: Sequence[str]) -> Adopted:
    containers, services, found = [], [], []
    by_position = len(names) == len(lane.services)
    for index, service in enumerate(lane.services):
        name = names[index] if by_position and service.container_name not in names else service.container_name
        container = station.engine.inspect(name)
        if container is None or not container.running:
            state = "is not there" if container is None else f"is {container.status}"
            raise LaneError(
                f"container {name} ({service.name} of lane {lane.label}) {state}: only what runs can be adopted",
                f"{engine_hints.show_containers(station)} shows what is there; name the containers: "
                "`lanectl adopt NAME... --lane LANE`",
                ExitCode.REFUSED,
            )
        kept = station.engine.recreate_args(container.id)
        owed = promise(
            lane,
            service,
            container_id=container.id,
            image_id=container.image_id,
            recreate=station.keep_recreate(container.id, kept),
        )
        services.append(
            replace(owed, container_name=container.name, restart=container.restart, devices=container.devices)
        )
        containers.append(container)
        found += differences(service.name, create_args(lane, service, name=container.name, labels={}), kept)
    owed_lane = owe(lane, tuple(services), host=station.site.client_host(), adopted=True)
    serving, detail = prove(station, owed_lane)
    return Adopted(owed_lane, tuple(containers), tuple(found), serving, detail)


def prove(station: Station, owed: Owed) -> tuple[bool, str]:
    """Climb the ladder once on each service; return whether all are ready, and the first reason why not."""
    for service in owed.services:
        _, verdict = look(
            engine=station.engine,
            prober=station.prober,
            container_id=service.container_id,
            service=service,
            served=served(station, owed, service),
        )
        if not verdict.ready:
            return False, f"{service.container_name}: {verdict.reason}: {verdict.detail}"
    return True, f"{owed.label} answered a real request"
