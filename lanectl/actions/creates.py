"""The create arguments of a candidate's containers, by service."""

from __future__ import annotations

from lanectl.actions.station import Station
from lanectl.core.container import LABEL_LANE, LABEL_ROLE, LABEL_SITE, LABEL_SPEC, LABEL_SWAP, CreateArgs
from lanectl.core.lane import Lane
from lanectl.core.owed import candidate_name
from lanectl.engine.create import create_args


def create_all(station: Station, lane: Lane, swap: str) -> dict[str, CreateArgs]:
    """Given a lane and the swap's id, return what each of its containers is created from; secrets as references."""
    return {
        service.name: create_args(
            lane,
            service,
            name=candidate_name(service.container_name, swap),
            labels={
                LABEL_SITE: station.site.id,
                LABEL_SWAP: swap,
                LABEL_LANE: lane.label,
                LABEL_ROLE: service.name,
                LABEL_SPEC: lane.sha256,
            },
        )
        for service in lane.services
    }
