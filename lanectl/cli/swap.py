"""`lanectl swap`: ask, run it with live progress (or as a job of the Station), and say how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lanectl.cli import consent, options, render
from lanectl.cli.report import show
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
    detach: Annotated[bool, typer.Option("--detach", help="As a job of the Station; see lanectl attach.")] = False,
    swap_id: Annotated[str | None, typer.Option("--id", hidden=True)] = None,
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
    request = SwapRequest(lane, measure, keep, from_dark, profile, swap_id)
    if not _agreed(station, request, yes):
        return consent.declined()
    if detach:
        return _detached(station, request, as_json=settings.json)
    return show(run(station, request), settings)


def run(station: Station, request: SwapRequest) -> SwapReport:
    """Run the swap with live progress; signals lead to the way back. Raise as `actions.swap.swap`."""
    from lanectl.actions.interrupts import Interrupts
    from lanectl.actions.swap import swap as swap_lanes
    from lanectl.cli import live

    interrupts = Interrupts()
    with live.progress() as progress, interrupts.caught(progress.note):
        return swap_lanes(station, request, progress, interrupts)


def _detached(station: Station, request: SwapRequest, *, as_json: bool) -> int:
    from lanectl.actions.detach import detach

    flags = {"--measure": request.measure, "--keep": request.keep, "--from-dark": request.from_dark}
    asked = [flag for flag, wanted in flags.items() if wanted]
    asked += ["--profile", request.profile] if request.profile else []
    swap_id = detach(station, request.label, asked)
    if as_json:
        render.emit({"swap": swap_id})
    else:
        render.out(f"{swap_id} runs as a job of this machine; follow it with: lanectl attach {swap_id}")
    return ExitCode.OK


def _agreed(station: Station, request: SwapRequest, yes: bool) -> bool:
    from lanectl.actions.outlook import outlook

    if render.interactive() and not yes:
        _offer_adoption(station)
    seen = outlook(station, request)
    return seen.stops is None or consent.agreed(seen.stops, seen.lines, yes=yes)


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
