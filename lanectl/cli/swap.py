"""`lanectl swap`: ask, run it with live progress, and say how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lanectl.cli import options, render
from lanectl.errors import ExitCode, LaneError

if TYPE_CHECKING:
    from lanectl.actions.report import SwapReport
    from lanectl.actions.station import Station
    from lanectl.actions.swap import SwapRequest


def swap(
    context: typer.Context,
    lane: options.Lane,
    measure: Annotated[bool, typer.Option("--measure", help="Measure it once it is proven.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="It becomes production: do not go back.")] = False,
    from_dark: Annotated[bool, typer.Option("--from-dark", help="Nothing is serving now.")] = False,
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="What to measure; else the lane's own.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before production is stopped.")] = False,
) -> int:
    """Stop production, prove a lane, put production back.

    Whatever happens on the way, production is back and has answered a real request when this ends; exit code 5 (DARK)
    is the loud exception.
    """
    from lanectl import wiring
    from lanectl.actions.swap import SwapRequest

    settings = options.settings(context)
    if profile is not None and not measure:
        raise LaneError("--profile says what to measure", "add --measure", ExitCode.USAGE)
    if profile is not None:
        wiring.check_profile(profile)
    station = wiring.build_station(settings)
    request = SwapRequest(lane, measure, keep, from_dark, profile)
    if not _agreed(station, request, yes):
        render.err("nothing was touched")
        return ExitCode.REFUSED
    report = run(station, request)
    show(report, as_json=settings.json)
    return report.exit_code


def run(station: Station, request: SwapRequest) -> SwapReport:
    """Run the swap with live progress; signals lead to the way back. Raise as `actions.swap.swap`."""
    from lanectl.actions.interrupts import Interrupts
    from lanectl.actions.swap import swap as swap_lanes
    from lanectl.cli import live

    interrupts = Interrupts()
    with live.progress() as progress, interrupts.caught(progress.note):
        return swap_lanes(station, request, progress, interrupts)


def _agreed(station: Station, request: SwapRequest, yes: bool) -> bool:
    """Ask before a serving production is touched. Raise `LaneError` (exit 2) where nobody can be asked."""
    from lanectl.actions.outlook import outlook

    asks = render.interactive() and not yes
    if asks:
        _offer_adoption(station)
    seen = outlook(station, request)
    if seen.stops is None or yes:
        return True
    if not asks:
        raise LaneError(
            f"{seen.stops} is serving and would be stopped; nobody can be asked here",
            "add --yes; `lanectl plan` shows what would happen",
            ExitCode.USAGE,
        )
    for line in seen.lines:
        render.err(line)
    return render.ask("Go on?")


def _offer_adoption(station: Station) -> None:
    """Production that was started by hand: offer to record it, which changes nothing about it."""
    from lanectl.actions.adopt import adopt
    from lanectl.actions.outlook import adoptable

    lane = adoptable(station)
    if lane is None:
        return
    names = ", ".join(service.container_name for service in lane.services)
    render.err(f"Nothing is recorded as production, and {names} of lane {lane.label} runs.")
    if render.ask("Record it as production (`lanectl adopt`)?"):
        render.err(adopt(station, [], lane.label).detail)


def show(report: SwapReport, *, as_json: bool) -> None:
    """Print how a swap ended. Whatever becomes of the output, the swap's exit code stands."""
    try:
        if as_json:
            render.emit(_to_json(report))
        else:
            _show(report)
    except OSError as error:
        render.err(f"the report could not be written: {error.strerror}; it is in {report.folder}")


def _show(report: SwapReport) -> None:
    if report.failure is not None:
        render.out(f"{report.lane} failed at {report.failure.step}: {report.failure.reason}: {report.failure.message}")
        for line in report.tail[-render.TAIL_LINES :]:
            render.out(f"  | {line}")
    render.out(f"{report.lane}: {report.outcome}. {_serving(report)}")
    render.out()
    render.lines(timeline_lines(report))
    if report.measured is not None:
        render.out()
        render.lines(measured_lines(report))
    for notice in report.notices:
        render.out(f"  note: {notice}")
    render.out()
    render.out(f"  everything about it: {report.folder}")
    render.out(f"  next: lanectl status · lanectl logs {report.swap} · lanectl audit log")


def _serving(report: SwapReport) -> str:
    if report.restored is None:
        return "It began dark and nothing is owed: nothing serves now."
    if report.outcome == "promoted":
        return f"{report.restored} is production now and serving: it answered a real request."
    return f"{report.restored} is restored and serving: it answered a real request."


def timeline_lines(report: SwapReport) -> list[str]:
    """Return the timeline: each phase and how long it took, and how long nothing served."""
    rows = [("phase", "seconds", "")]
    rows += [(phase.phase, f"{phase.seconds:.2f}", "") for phase in report.timeline.phases]
    rows.append(("in all", f"{report.timeline.total_s:.2f}", ""))
    dark = report.timeline.dark_s
    if dark is not None:
        rows.append(("dark time", f"{dark:.2f}", "from the order to stop production until a real request was answered"))
    return render.columns(rows, right=[1])


def measured_lines(report: SwapReport) -> list[str]:
    """Return the measured table and what must be known beside it."""
    from lanectl import wiring

    if report.measured is None:
        return []
    results = report.measured["results"]
    rows, notes = wiring.measured_table(results)
    lines = [f"  measured over HTTP, profile {results['profile']}: {results['summary']}"]
    lines += render.columns([("", "", ""), *rows][1:], right=[1], indent="    ")
    return [*lines, *(f"    note: {note}" for note in notes)]


def _to_json(report: SwapReport) -> dict[str, object]:
    from lanectl.core.codec import to_json

    return {**to_json(report), "exit_code": int(report.exit_code)}
