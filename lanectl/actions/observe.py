"""Look at the engine through the eyes of one swap: what is there that is not owed, and what is owed."""

from __future__ import annotations

from collections.abc import Iterable

from lanectl.actions.station import Station
from lanectl.core.container import LABEL_ROLE, LABEL_SWAP, Container
from lanectl.core.journal import SwapState
from lanectl.core.owed import OwedService
from lanectl.core.recovery import Observed, SeenService, known_names
from lanectl.ports import ContainerEngine


def observe(station: Station, state: SwapState, *, released: bool, proven: bool) -> Observed:
    """Return what the engine shows now. Raise `Unreachable` or `EngineError` when it cannot be asked."""
    target = tuple(
        SeenService(service, find(station.engine, service, known_names(state, service)))
        for service in (state.owed.services if state.owed else ())
    )
    parked = _parked(station.engine, state)
    known = {seen.container.id for seen in (*target, *parked) if seen.container is not None}
    made = [container for container in station.engine.containers({LABEL_SWAP: state.swap}) if container.id not in known]
    owed_ids = {seen.container.id for seen in target if seen.container is not None}
    rivals = tuple(
        seen for seen in parked if seen.container and seen.container.active and seen.container.id not in owed_ids
    )
    return Observed(_stop_order(state, made), target, released, proven, rivals)


def find(engine: ContainerEngine, service: OwedService, names: Iterable[str]) -> Container | None:
    """Return the container that is this owed service: by its id, else by a name it may have and its very image.

    A container of the right name with another image is somebody else's: it is not taken for ours.
    """
    container = engine.inspect(service.container_id)
    if container is not None:
        return container
    for name in names:
        container = engine.inspect(name)
        if container is not None and container.image_id == service.image_id:
            return container
    return None


def _parked(engine: ContainerEngine, state: SwapState) -> tuple[SeenService, ...]:
    """Return the services of lanes that this swap parks or wakes and that are not what is owed, in stop order."""
    lanes = [lane for lane in (state.former, state.guest) if lane is not None and lane != state.owed]
    return tuple(
        SeenService(service, find(engine, service, known_names(state, service)))
        for lane in lanes
        for service in reversed(lane.services)
    )


def _stop_order(state: SwapState, containers: list[Container]) -> tuple[Container, ...]:
    """Order containers so that what depends on others goes first: the reverse of the planned start order."""
    order = {planned.service: index for index, planned in enumerate(state.candidates)}
    return tuple(sorted(containers, key=lambda container: -order.get(container.labels.get(LABEL_ROLE, ""), len(order))))
