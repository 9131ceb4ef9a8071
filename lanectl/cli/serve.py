"""`lanectl rollback|stop|start|restart|attach`: one command each for what an operator does to production."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from lanectl.cli import consent, options, render
from lanectl.cli.report import show

if TYPE_CHECKING:
    from lanectl.actions.progress import Progress
    from lanectl.actions.report import SwapReport
    from lanectl.actions.station import Station

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before production is stopped.")]


def rollback(context: typer.Context, yes: Yes = False) -> int:
    """Go back to the lane that was production before.

    From serving, from DARK, from a trip: the readiness ladder only, no gates. If the old lane does not come up, what
    was production is brought back.
    """
    from lanectl import wiring
    from lanectl.actions.interrupts import Interrupts
    from lanectl.actions.rollback import previous
    from lanectl.actions.rollback import rollback as go_back
    from lanectl.cli import live

    settings = options.settings(context)
    station = wiring.build_station(settings)
    to, production = previous(station), station.production()
    owed = production.owed
    if owed is not None:
        will = f"{owed.label} is stopped, and {to.label} becomes production again."
        if not consent.agreed(owed.label, [will], yes=yes):
            return consent.declined()
    interrupts = Interrupts()
    with live.progress() as progress, interrupts.caught(progress.note):
        report = go_back(station, progress, interrupts)
    return show(report, settings)


def stop(context: typer.Context, yes: Yes = False) -> int:
    """Stop production on purpose; it stays so until start.

    Nothing starts it meanwhile, a reboot neither.
    """
    from lanectl import wiring
    from lanectl.actions.stop import stop as end
    from lanectl.cli import live

    settings = options.settings(context)
    station = wiring.build_station(settings)
    owed = station.production().owed
    will = "Nothing serves then, until `lanectl start`."
    if owed is not None and not consent.agreed(owed.label, [f"{owed.label} is stopped. {will}"], yes=yes):
        return consent.declined()
    with live.progress() as progress:
        done = end(station, progress)
    if settings.json:
        from lanectl.core.codec import to_json

        render.emit({**to_json(done), "exit_code": 0})
    else:
        render.out(f"{done.lane} is stopped and stays so: {done.starts}")
    return 0


def start(context: typer.Context) -> int:
    """Start production that was stopped, and prove it."""
    from lanectl.actions.start import start as begin

    return _serve(context, begin, held_off=True)


def restart(context: typer.Context, yes: Yes = False) -> int:
    """Stop production and start it again; clears a trip."""
    from lanectl import wiring
    from lanectl.actions.start import restart as again

    owed = wiring.build_station(options.settings(context)).production().owed
    will = "is stopped and started again."
    if owed is not None and not consent.agreed(owed.label, [f"{owed.label} {will}"], yes=yes):
        return consent.declined()
    return _serve(context, again, held_off=True)


def attach(
    context: typer.Context,
    swap_id: Annotated[str | None, typer.Argument(metavar="[SWAP]", help="Else the newest.")] = None,
) -> int:
    """Follow a swap that runs as a job of the Station.

    A follower changes nothing: Ctrl-C ends the following, not the swap.
    """
    from lanectl.actions.attach import attach as follow
    from lanectl.actions.attach import newest

    return _serve(context, lambda station, progress: follow(station, swap_id or newest(station), progress))


def _serve(context: typer.Context, act: Callable[[Station, Progress], SwapReport], *, held_off: bool = False) -> int:
    """Run it with live progress. `held_off`: production is down meanwhile, so no signal cuts it short."""
    from lanectl import wiring
    from lanectl.actions import interrupts
    from lanectl.cli import live

    settings = options.settings(context)
    station = wiring.build_station(settings)
    with live.progress() as progress, interrupts.held_off(progress.note, interrupts.SIGNALS if held_off else ()):
        report = act(station, progress)
    return show(report, settings)
