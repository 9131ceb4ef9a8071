"""What a swap leaves in production.json, the record of what production is."""

from __future__ import annotations

from dataclasses import replace

from lanectl.actions.station import Station
from lanectl.core.journal import SwapState
from lanectl.core.owed import Desired, Owed, Production, keep_tag
from lanectl.core.recovery import SeenService
from lanectl.errors import LaneError


def record_production(station: Station, state: SwapState, target: tuple[SeenService, ...] = ()) -> None:
    """Record what is owed now, by the ids of the containers that were seen to be it: they may have been made again.

    After a commit the promoted lane is production and desired to serve, a trip of the lane before is over, and that one
    is what a rollback goes back to. Repeating it is fine. Raise `LaneError` when it cannot be written.
    """
    if state.owed is None:
        return
    now = _with_ids(state.owed, {seen.owed.name: seen.container.id for seen in target if seen.container is not None})
    before = station.production()
    after = replace(before, current=now)
    if state.committed:
        # The COMMITTED record names it, owed or not; what is current by now may be this very lane, made again.
        previous = state.former or before.previous
        after = replace(after, previous=previous, desired=Desired.SERVING, tripped=None)
    if after != before:
        station.record_production(after)
        _let_go(station, before, after)


def _with_ids(owed: Owed, ids: dict[str, str]) -> Owed:
    services = tuple(
        replace(service, container_id=ids.get(service.name, service.container_id)) for service in owed.services
    )
    return replace(owed, services=services)


def _let_go(station: Station, before: Production, after: Production) -> None:
    """Drop the keep-tags of images that were kept for a rollback and that no lane to go back to uses any more."""
    for image_id in _images(before) - _images(after):
        try:
            station.engine.drop_image_tag(keep_tag(image_id))
        except LaneError as error:
            # A tag too many keeps an image too many, nothing else.
            station.log.warning("a keep-tag was not removed", image=image_id, error=error.message)


def _images(production: Production) -> set[str]:
    lanes = [lane for lane in (production.current, production.previous) if lane is not None]
    return {service.image_id for lane in lanes for service in lane.services}
