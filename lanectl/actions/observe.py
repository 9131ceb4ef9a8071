"""Look at the engine through the eyes of one swap: what is there that is not owed, and what is owed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lanectl.actions.debts import taken_over
from lanectl.actions.station import Station
from lanectl.core.container import LABEL_ROLE, LABEL_SWAP, LABELS, Container
from lanectl.core.journal import SwapState
from lanectl.core.owed import OwedService
from lanectl.core.recovery import Observed, SeenService, known_names
from lanectl.errors import LaneError


def observe(station: Station, state: SwapState, *, released: bool, proven: bool) -> Observed:
    """Return what the engine shows now. Raise `Unreachable` or `EngineError` when it cannot be asked."""
    target = tuple(
        SeenService(service, find(station, service, known_names(state, service)))
        for service in (state.owed.services if state.owed else ())
    )
    parked = _parked(station, state)
    known = {seen.container.id for seen in (*target, *parked) if seen.container is not None}
    swaps = (state.swap, *_abandoned(station, state))
    made = [one for swap in swaps for one in station.engine.containers({LABEL_SWAP: swap}) if one.id not in known]
    owed_ids = {seen.container.id for seen in target if seen.container is not None}
    rivals = tuple(seen for seen in parked if _rival(seen) and seen.container and seen.container.id not in owed_ids)
    return Observed(_stop_order(state, made), target, released, proven, rivals)


def find(station: Station, service: OwedService, names: Iterable[str]) -> Container | None:
    """Return the container that is this owed service: by its id, else one that was made again in its place.

    A container of the right name with another image, or made for another lane or swap, is not it.
    """
    container = station.engine.inspect(service.container_id)
    if container is not None:
        return container
    for name in names:
        container = station.engine.inspect(name)
        if container is not None and _made_again(station, service, container):
            return container
    return None


def _made_again(station: Station, service: OwedService, container: Container) -> bool:
    """True when it has the image and lanectl's labels of what is kept to make it again. Two lanes can share an image
    and a container name; two candidates never share their labels."""
    if container.image_id != service.image_id:
        return False
    try:
        kept = station.kept_recreate(service.recreate)
    except LaneError:
        return False
    return _ours(container.labels) == _ours(kept.body.get("Labels") or {})


def _ours(labels: Mapping[str, str]) -> list[str | None]:
    """Return lanectl's own labels: a container has those of its image, too."""
    return [labels.get(name) for name in LABELS]


def _rival(seen: SeenService) -> bool:
    container = seen.container
    return container is not None and (container.active or container.name == seen.owed.container_name)


def _abandoned(station: Station, state: SwapState) -> tuple[str, ...]:
    """Return the swaps taken over that promoted nothing: whatever they made is owed to nobody."""
    if not (state.supersedes and state.armed):
        return ()
    return tuple(debt.swap for debt in taken_over(station, state) if not debt.committed)


def _parked(station: Station, state: SwapState) -> tuple[SeenService, ...]:
    """Return the services of lanes that this swap parks or wakes and that are not what is owed, in stop order."""
    lanes = [lane for lane in (state.former, state.guest) if lane is not None and lane != state.owed]
    return tuple(
        SeenService(service, find(station, service, known_names(state, service)))
        for lane in lanes
        for service in reversed(lane.services)
    )


def _stop_order(state: SwapState, containers: list[Container]) -> tuple[Container, ...]:
    """Order containers so that what depends on others goes first: the reverse of the planned start order."""
    order = {planned.service: index for index, planned in enumerate(state.candidates)}
    return tuple(sorted(containers, key=lambda container: -order.get(container.labels.get(LABEL_ROLE, ""), len(order))))
