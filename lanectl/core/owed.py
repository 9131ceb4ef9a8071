"""What production is, and what a swap owes: a lane that is back only when it answered a real request.

An `Owed` is complete in itself: a restore needs neither the spec (which may have changed since) nor the network, only
the engine and, should a parked container be missing, the 0600 file with its create arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from lanectl.core.serving import Drain, Fact, GpuMemory, Ready, Restart, Watchdog

if TYPE_CHECKING:
    from lanectl.core.lane import Lane, Service


@dataclass(frozen=True, slots=True)
class OwedService:
    """One container that is owed. `name` is its service name, `container_name` its name while it serves.

    `restart` is the policy it gets back once it is proven; while parked it has `no`. `recreate` is the path, relative
    to the state directory, of its create arguments (image by id).
    """

    name: str
    container_name: str
    container_id: str
    image_id: str
    stop_grace_s: float
    restart: Restart
    recreate: str
    ready: Ready | None = None
    memory: GpuMemory | None = None
    devices: tuple[str, ...] = ()

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Boot facts are asserted for candidates; what is owed must serve, whatever its log says."""
        return ()


@dataclass(frozen=True, slots=True)
class Owed:
    """A lane that is owed. `services` are in start order. `host`, `port`: where this machine reaches it.

    `drain`: how it wants to be let finish before it is stopped. `watchdog`: what kills it rather than let it lie;
    `fallback`: the lane that `on_trip: fallback` means.
    """

    lane: str
    variant: str | None
    spec_sha256: str
    adopted: bool
    served_model: str
    max_model_len: int | None
    host: str
    port: int
    services: tuple[OwedService, ...]
    shm: tuple[str, ...] = ()
    drain: Drain | None = None
    watchdog: Watchdog | None = None
    fallback: str | None = None

    @property
    def label(self) -> str:
        return f"{self.lane}@{self.variant}" if self.variant else self.lane

    @property
    def container_ids(self) -> frozenset[str]:
        return frozenset(service.container_id for service in self.services)

    @property
    def server(self) -> OwedService:
        """The service clients talk to (the same rule as `Lane.server`)."""
        for service in reversed(self.services):
            if service.ready is not None and service.ready.speaks_http:
                return service
        return self.services[-1]


class Desired(StrEnum):
    SERVING = "serving"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Tripped:
    """A watchdog's durable verdict: nothing starts until a person clears it."""

    at: str
    reason: str


@dataclass(frozen=True, slots=True)
class Production:
    """state/production.json: what production *is*. `previous`: the lane that was production before `current`."""

    current: Owed | None = None
    previous: Owed | None = None
    desired: Desired = Desired.SERVING
    tripped: Tripped | None = None
    idle_mib: dict[str, int] = field(default_factory=dict)

    @property
    def owed(self) -> Owed | None:
        """What is owed now: `current`, unless it tripped or was stopped on purpose."""
        if self.tripped is not None or self.desired is Desired.STOPPED:
            return None
        return self.current


def after_trip(production: Production) -> str:
    """Return the commands with which a person clears a trip, in words."""
    again = (
        f"`lanectl restart` starts {production.current.label} again" if production.current else "`lanectl adopt NAME`"
    )
    back = f", `lanectl rollback` goes back to {production.previous.label}" if production.previous else ""
    return again + back


def parked_name(container_name: str, swap: str) -> str:
    """The name a container of production has while a swap needs its place."""
    return f"{container_name}.parked.{swap}"


def candidate_name(container_name: str, swap: str) -> str:
    """The name a candidate has until it is committed, so that it can be created while production still has the name."""
    return f"{container_name}.candidate.{swap}"


def keep_tag(image_id: str) -> str:
    """The tag that keeps an owed image from being pruned; the whole digest, so that no two images share one."""
    return f"lanectl-keep:{image_id.rpartition(':')[2]}"


def promise(lane: Lane, service: Service, *, container_id: str, image_id: str, recreate: str) -> OwedService:
    """Given a lane's service and the container that runs it, return what is owed once the lane is production."""
    return OwedService(
        name=service.name,
        container_name=service.container_name,
        container_id=container_id,
        image_id=image_id,
        stop_grace_s=service.stop_grace_s,
        restart=service.restart,
        recreate=recreate,
        ready=service.ready,
        memory=service.memory,
        devices=tuple(device.qualified for device in service.devices),
    )


def owe(lane: Lane, services: tuple[OwedService, ...], *, host: str, adopted: bool) -> Owed:
    """Given a lane rendered for the public port and its owed services, return what is owed."""
    return Owed(
        lane=lane.name,
        variant=lane.variant,
        spec_sha256=lane.sha256,
        adopted=adopted,
        served_model=lane.served_model,
        max_model_len=lane.max_model_len,
        host=host,
        port=lane.port,
        services=services,
        shm=lane.shm,
        drain=lane.drain,
        watchdog=lane.watchdog,
        fallback=lane.fallback,
    )
