"""`lanectl health LANE`: the ladder over HTTP, and what the site's records make of a lane that does not answer."""

from __future__ import annotations

from dataclasses import replace

from lanectl.actions.health import HealthReport, check_lane
from lanectl.actions.station import Station
from lanectl.actions.unfinished import open_swaps
from lanectl.actions.watch_view import view
from lanectl.errors import ExitCode
from lanectl.site.load import load_lane
from lanectl.store.lock import Lock
from lanectl.store.watch import WatchFiles, watch_key


def lane_health(station: Station, label: str, api_key: str | None) -> HealthReport:
    """Given a lane's label, ask its public address; return the report. The engine is not asked.

    A lane that answers is well, if it is the one that is recorded as production and its watchdog looks. One that does
    not: in a swap within its deadline that is to be expected (0), after a restore that gave up it is DARK (5), after a
    swap that nobody finished 6, after a trip of the watchdog TRIPPED (8). Raise `SpecError` or `LaneError` for no good
    lane.
    """
    lane = load_lane(station.site, label, public=True)
    ready = lane.server.ready
    key = api_key or station.api_key(ready.api_key if ready else None)
    swaps = open_swaps(station)
    working = Lock(station.state.lock).holder() is not None
    until = max((swap.deadline for swap in swaps), default=None) if working else None
    report = check_lane(lane, prober=station.prober, clock=station.clock, api_key=key, swap_until=until)
    current = station.production().current
    if report.exit_code is ExitCode.OK:
        if current is not None and current.label != lane.label and not working:
            return replace(report, exit_code=ExitCode.FAILED, detail=f"{current.label} serves, not {lane.label}")
        return _watched(station, lane.label, report)
    stuck = next((swap.stuck for swap in swaps if swap.stuck is not None), None)
    if stuck is not None and not working:
        return replace(report, exit_code=ExitCode.DARK, detail=f"{stuck.reason}; seen now: {report.detail}")
    if swaps and not working:
        left = f"swap {swaps[0].swap} was left unfinished at {swaps[0].phase}: run `lanectl recover`"
        return replace(report, exit_code=ExitCode.UNFINISHED, detail=f"{left}; seen now: {report.detail}")
    tripped = station.production().tripped
    if tripped is not None:
        detail = f"at {tripped.at}: {tripped.reason}; seen now: {report.detail}"
        return replace(report, exit_code=ExitCode.TRIPPED, detail=detail)
    return report


def _watched(station: Station, label: str, report: HealthReport) -> HealthReport:
    """A lane that answers and asks for a watchdog must have one that looks: else its answers may be wrong unseen."""
    current = station.production().current
    if current is None or current.label != label or current.watchdog is None:
        return report
    seen = view(WatchFiles(station.state.watch / watch_key(current.server.container_id)))
    if seen is not None and seen.armed:
        return report
    why = seen.why if seen is not None else "it was never armed"
    return replace(report, exit_code=ExitCode.FAILED, detail=f"its watchdog does not look: {why}")
