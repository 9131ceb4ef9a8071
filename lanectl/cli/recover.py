"""`lanectl recover` and `lanectl adopt`: bring the records and the world together."""

from __future__ import annotations

from typing import Annotated

import typer

from lanectl.cli import options, render


def recover(
    context: typer.Context,
    if_needed: Annotated[bool, typer.Option("--if-needed", help="For a timer: quiet where somebody works.")] = False,
) -> int:
    """Restore what an unfinished swap owes, and close it.

    With nothing unfinished, production that is owed and down (after a reboot) is started. A closed terminal does not
    end it; Ctrl-C does, and the next recover goes on.
    """
    import signal

    from lanectl import wiring
    from lanectl.actions.interrupts import held_off
    from lanectl.actions.recover import recover as finish
    from lanectl.actions.unfinished import interrupted_recovery
    from lanectl.cli import live

    settings = options.settings(context)
    station = wiring.build_station(settings)
    with live.progress() as progress, held_off(progress.note, [signal.SIGHUP]):
        try:
            done = finish(station, progress, if_needed=if_needed)
        except KeyboardInterrupt:
            raise interrupted_recovery(station) from None
    if settings.json:
        swaps = [{"swap": swap, "outcome": outcome} for swap, outcome in done.swaps]
        render.emit({"swaps": swaps, "why": done.why, "watchdog": done.watchdog, "exit_code": 0})
    elif done.nothing:
        render.out(f"nothing to recover: {done.why}")
    else:
        render.lines([f"{swap}: {outcome}" for swap, outcome in done.swaps])
        render.lines([done.watchdog] if done.watchdog else [])
    return 0


def adopt(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Running containers; else the lane's own names.")
    ] = None,
    lane: Annotated[
        str | None, typer.Option(metavar="LANE", help="Which lane they are.", autocompletion=options.complete_lane)
    ] = None,
) -> int:
    """Record the production that already runs, started by hand. Nothing about it is changed.

    What differs from the lane's spec is shown; a swap will bring back these very containers, as they are.
    """
    from lanectl import wiring
    from lanectl.actions.adopt import adopt as record
    from lanectl.core.codec import to_json
    from lanectl.errors import ExitCode

    settings = options.settings(context)
    done = record(wiring.build_station(settings), names or (), lane)
    code = ExitCode.OK if done.serving else ExitCode.FAILED
    if settings.json:
        containers = [{"name": one.name, "id": one.id} for one in done.containers]
        found = {"lane": done.owed.label, "containers": containers, "serving": done.serving, "detail": done.detail}
        render.emit({**found, "differences": to_json(done.differences), "exit_code": int(code)})
        return code
    for container in done.containers:
        render.out(f"{container.name} ({container.id[:12]}) is recorded as production {done.owed.label}")
    for one in done.differences:
        render.out(f"  {one.service}: {one.key}: the spec says {one.spec}, it runs with {one.running}")
    render.out(f"serving: {done.detail}" if done.serving else f"NOT proven serving: {done.detail}")
    return code


def units(
    context: typer.Context,
    install: Annotated[bool, typer.Option("--install", help="Write them where systemd reads them.")] = False,
) -> int:
    """Print the systemd units for recovery and watchdogs.

    One recovers at boot, one does by a timer, and one for each lane that asks for it sees that it is watched.
    """
    from lanectl import wiring
    from lanectl.actions.units import install as write
    from lanectl.actions.units import site_units
    from lanectl.core.units import watch_service_name

    settings = options.settings(context)
    site = wiring.read_site(settings)
    paths = [str(path) for path in write(site)] if install else []
    found = site_units(site)
    if settings.json:
        render.emit({"units": {unit.name: unit.text for unit in found}, "written": paths})
    elif install:
        names = " ".join(unit.name for unit in found if not unit.template)
        render.lines([*paths, f"now run: systemctl daemon-reload && systemctl enable --now {names}"])
        render.out(f"for a lane with a watchdog: systemctl enable --now {watch_service_name(site, 'LANE')}")
    else:
        for unit in found:
            render.out(f"# {unit.name}")
            render.out(unit.text.rstrip())
            render.out()
    return 0
