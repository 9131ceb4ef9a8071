"""`lanectl stop`: production is stopped on purpose and stays so, over reboots too, until a person starts it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lanectl.actions.operation import conclude, intend, locked
from lanectl.actions.park import hold
from lanectl.actions.progress import Progress
from lanectl.actions.station import Station
from lanectl.actions.unfinished import refuse_unfinished
from lanectl.actions.watching import of_owed
from lanectl.core.owed import Desired, after_trip
from lanectl.errors import ExitCode, LaneError


@dataclass(frozen=True, slots=True)
class StopReport:
    """What was stopped, and how each service ended: already | term | kill | gone. `starts`: what starts it again, in
    words: a trip is not cleared by a stop."""

    lane: str
    services: dict[str, dict[str, Any]]
    starts: str


def stop(station: Station, progress: Progress) -> StopReport:
    """Stop production, server first.

    That it is to be stopped is recorded before anything is: a death in the middle leaves nothing that would start it.
    Raise `Busy`, `Unfinished`, `LaneError` (exit 3: nothing recorded; else the engine's own).
    """
    with locked(station):
        refuse_unfinished(station)
        production = station.production()
        current = production.current
        if current is None:
            raise LaneError("nothing is recorded as production", "`lanectl adopt NAME` records it", ExitCode.REFUSED)
        intend(station, "stop", {"lane": current.label, "argv": list(station.command)})
        if production.desired is not Desired.STOPPED:
            station.record_production(replace(production, desired=Desired.STOPPED))
        watchdog = of_owed(station, current)
        if watchdog is not None:
            watchdog.stand_by()
        ended = {}
        for service in reversed(current.services):
            progress.ticker(f"stopping {service.container_name}, at most {service.stop_grace_s:g} s")
            ended[service.name] = hold(station.engine, service.container_id, service)
        if watchdog is not None:
            watchdog.end()
        conclude(station, "stop", {"lane": current.label, "ended": ended})
        production = station.production()  # its watchdog may have tripped as it was stopped
        starts = after_trip(production) if production.tripped else f"`lanectl start` starts {current.label} again"
        return StopReport(current.label, ended, starts)
