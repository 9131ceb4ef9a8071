"""`lanectl health LANE`: the ladder over HTTP, and what the site's records make of a lane that does not answer."""

from __future__ import annotations

from dataclasses import replace

from lanectl.actions.health import HealthReport, check_lane
from lanectl.actions.station import Station
from lanectl.actions.unfinished import at_work
from lanectl.actions.watch_view import armed_by, mended_by, view
from lanectl.core.owed import Owed
from lanectl.errors import ExitCode
from lanectl.site.load import load_lane
from lanectl.store.watch import WatchFiles, watch_key

# Well, or said only where nobody is at work: no swap excuses them.
SURE = (ExitCode.OK, ExitCode.DARK, ExitCode.UNFINISHED)


def lane_health(station: Station, label: str, api_key: str | None) -> HealthReport:
    """Given a lane's label, ask its public address; return the report. The engine is not asked.

    In a swap within its deadline nothing that is seen is an alarm (0): the lane is down, another one answers, or its
    watchdog is yet to be armed. Else a lane that answers is well, if it is the one that is recorded as production and
    its watchdog looks. One that does not: after a restore that gave up it is DARK (5), after a swap that nobody
    finished 6, after a trip of the watchdog TRIPPED (8). Raise `SpecError` or `LaneError` for no good lane.
    """
    lane = load_lane(station.site, label, public=True)
    ready = lane.server.ready
    key = api_key or station.api_key(ready.api_key if ready else None)
    before = _swap_until(station)
    report = _judged(station, lane.label, check_lane(lane, prober=station.prober, clock=station.clock, api_key=key))
    if report.exit_code in SURE:
        return report
    # A swap that began or ended while we looked explains what was seen as well as one that lasted all the time.
    ends = [end for end in (before, _swap_until(station)) if end is not None]
    if not ends or station.clock.monotonic() > max(ends):
        return report
    detail = f"a swap is in progress, within its deadline; seen meanwhile: {report.detail}"
    return replace(report, exit_code=ExitCode.OK, detail=detail)


def _swap_until(station: Station) -> float | None:
    """Return until when (of clock.monotonic()) the swap that somebody works on may take; None where nobody does."""
    holder, swaps = at_work(station)
    return max((swap.deadline for swap in swaps), default=None) if holder is not None else None


def _judged(station: Station, label: str, report: HealthReport) -> HealthReport:
    """Given what was seen of a lane, return what the site's records make of it, no swap in time being at work."""
    holder, swaps = at_work(station)
    production = station.production()
    if report.exit_code is ExitCode.OK:
        if production.current is not None and production.current.label != label and holder is None:
            detail = f"{production.current.label} serves, not {label}"
            return replace(report, exit_code=ExitCode.FAILED, detail=detail)
        return _watched(station, production.current, label, report)
    stuck = next((swap.stuck for swap in swaps if swap.stuck is not None), None)
    if stuck is not None and holder is None:
        return replace(report, exit_code=ExitCode.DARK, detail=f"{stuck.reason}; seen now: {report.detail}")
    if swaps and holder is None:
        left = f"swap {swaps[0].swap} was left unfinished at {swaps[0].phase}: run `lanectl recover`"
        return replace(report, exit_code=ExitCode.UNFINISHED, detail=f"{left}; seen now: {report.detail}")
    if production.tripped is not None:
        detail = f"at {production.tripped.at}: {production.tripped.reason}; seen now: {report.detail}"
        return replace(report, exit_code=ExitCode.TRIPPED, detail=detail)
    return report


def _watched(station: Station, current: Owed | None, label: str, report: HealthReport) -> HealthReport:
    """A lane that answers and asks for a watchdog must have one that looks: else its answers may be wrong unseen."""
    if current is None or current.label != label or current.watchdog is None:
        return report
    seen = view(WatchFiles(station.state.watch / watch_key(current.server.container_id)), label)
    if seen is not None and seen.sound:
        return report
    if seen is not None and seen.armed:
        detail = f"its watchdog looks, but of its files {seen.damage}: {mended_by(label)}"
    else:
        why = seen.why if seen is not None else "it was never armed"
        detail = f"its watchdog does not look: {why}: {armed_by(label)}"
    return replace(report, exit_code=ExitCode.FAILED, detail=detail)
