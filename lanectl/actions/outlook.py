"""What a swap is about to do to production, in a few lines, for the person who is asked."""

from __future__ import annotations

from dataclasses import dataclass

from lanectl.actions.history import Outage, expected_outage
from lanectl.actions.station import Station
from lanectl.actions.swap import SwapRequest
from lanectl.actions.unfinished import refuse_unfinished
from lanectl.core.lane import Lane
from lanectl.errors import Busy, LaneError
from lanectl.site.load import load_lane
from lanectl.store.lock import Lock


@dataclass(frozen=True, slots=True)
class Outlook:
    """`stops`: the serving lane that would be stopped, None when none would be."""

    stops: str | None
    lines: tuple[str, ...]


def outlook(station: Station, request: SwapRequest) -> Outlook:
    """Look ahead without taking anything. Raise what the swap itself would raise at once: `Busy`, `Unfinished`, `Dark`,
    `SpecError`."""
    holder = Lock(station.state.lock).holder()
    if holder is not None:
        raise Busy(f"{holder} is at work on this site", "`lanectl status` shows how far it is")
    refuse_unfinished(station)
    lane = load_lane(station.site, request.label, public=request.keep)
    owed = station.production().owed
    if owed is None or request.from_dark:
        return Outlook(None, ())
    outage = expected_outage(station.state, lane.label, keep=request.keep, measure=request.measure)
    then = "becomes production" if request.keep else f"is removed, and {owed.label} comes back"
    return Outlook(
        owed.label,
        (
            f"{owed.label} is serving on port {owed.port} and will be stopped.",
            f"{lane.label} is booted and proven{', measured' if request.measure else ''}, then it {then}.",
            f"Expected outage: {outage_text(outage, lane.label)}.",
        ),
    )


def outage_text(outage: Outage | None, lane: str) -> str:
    """Return the expected outage in words."""
    if outage is None:
        return f"unknown, no earlier swap of {lane} like this one"
    return f"{outage.median_s:.1f} s (median of {outage.swaps} such swaps of {lane}; the last: {outage.last_s:.1f} s)"


def adoptable(station: Station) -> Lane | None:
    """Return station.yaml's production lane when nothing is recorded as production and its containers all run."""
    if station.production().current is not None or station.site.production is None:
        return None
    lane = load_lane(station.site, station.site.production, public=True)
    try:
        seen = [station.engine.inspect(service.container_name) for service in lane.services]
    except LaneError:
        return None  # preflight says what is wrong with the engine
    return lane if all(container is not None and container.running for container in seen) else None
