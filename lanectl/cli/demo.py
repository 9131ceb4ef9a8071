"""`lanectl demo`: the main job, end to end, on a machine without a GPU."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lanectl.cli import options, render
from lanectl.errors import ExitCode, LaneError

if TYPE_CHECKING:
    from lanectl.actions.demo import Watched
    from lanectl.actions.report import SwapReport
    from lanectl.actions.station import Station
    from lanectl.settings import Settings

PROFILE = "quick"


def demo(
    context: typer.Context,
    docker: Annotated[bool, typer.Option("--docker", help="In containers of the engine at $DOCKER_HOST.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Take the demo site of --site down again.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before containers are made with --docker.")] = False,
) -> int:
    """Try it: a site that serves, a swap, a measurement.

    Makes a demo site in --site DIR (else in a temporary directory that it names), starts production there, and swaps
    in another lane while a client watches. Needs no GPU and no container engine. The site stays, to play with.
    """
    from lanectl import wiring

    settings = options.settings(context)
    if stop:
        return _take_down(settings)
    if docker and not yes and not _agreed():
        return ExitCode.REFUSED
    root = _site(settings, docker)
    station = wiring.demo_station(settings, root, ())
    render.err(f"demo site {root}: {station.site.engine.kind} engine, port {station.site.public_port}")
    _ensure_production(settings, root)
    return _swap(settings, root)


def _site(settings: Settings, docker: bool) -> Path:
    """Return the demo site's directory, made where it is not there yet."""
    import tempfile

    from lanectl import wiring
    from lanectl.actions.demo import is_demo, make_site, refresh_image

    named = settings.site
    root = Path(named).absolute() if named else Path(tempfile.mkdtemp(prefix="lanectl-demo-"))
    if not is_demo(root):
        make_site(root, wiring.demo_host(docker, settings.environ), wiring.build_prober())
        return root
    station = wiring.demo_station(settings, root, ())
    image = station.site.images["reference"]
    if station.engine.image(image) is None:
        refresh_image(root, image, wiring.demo_host(station.site.engine.kind == "docker", settings.environ))
    return root


def _ensure_production(settings: Settings, root: Path) -> None:
    from lanectl import wiring
    from lanectl.actions.demo import needs
    from lanectl.actions.start import start
    from lanectl.actions.swap import SwapRequest
    from lanectl.cli import live
    from lanectl.cli.swap import run
    from lanectl.site.demo import PRODUCTION

    missing = needs(wiring.demo_station(settings, root, ()))
    if not missing:
        return
    words = ("start",) if missing == "start" else ("swap", PRODUCTION, "--keep", "--from-dark")
    station = _announced(settings, root, words)
    if missing == "start":
        with live.progress() as progress:
            report = start(station, progress)
    else:
        report = run(station, SwapRequest(PRODUCTION, keep=True, from_dark=True))
    if report.exit_code is not ExitCode.OK:
        from dataclasses import replace

        from lanectl.cli.report import show

        show(report, replace(settings, json=False, site=str(root)))
        raise LaneError(f"the demo's production {PRODUCTION} did not come up", f"see {report.folder}", report.exit_code)


def _swap(settings: Settings, root: Path) -> int:
    from lanectl.actions.demo import watched
    from lanectl.actions.swap import SwapRequest
    from lanectl.cli.swap import run
    from lanectl.core.codec import to_json
    from lanectl.site.demo import CANDIDATE

    station = _announced(settings, root, ("swap", CANDIDATE, "--measure", "--profile", PROFILE, "--yes"))
    with watched(station) as seen:
        report = run(station, SwapRequest(CANDIDATE, measure=True, profile=PROFILE))
    client = seen[0] if seen else None
    if settings.json:
        render.emit(
            {"site": str(root), "swap": to_json(report), "client": to_json(client), "exit_code": int(report.exit_code)}
        )
    else:
        render.lines(_lines(report, client, root))
    return report.exit_code


def _lines(report: SwapReport, client: Watched | None, root: Path) -> list[str]:
    from lanectl.cli.report import failure_lines, measured_lines, serving, timeline_lines

    extra = []
    if client is not None:
        saw = f"from its last answer to the next; {client.failures} questions between had none"
        extra.append(("a client saw", f"{client.longest_gap_s:.2f}", saw))
    lines = [*failure_lines(report), f"{report.lane}: {report.outcome}. {serving(report)}", ""]
    lines += timeline_lines(report, extra)
    lines += ["", *measured_lines(report), ""]
    at = f"{_program()} --site {shlex.quote(str(root))}"
    return [
        *lines,
        "Production is serving; the site stays. Try next:",
        f"  {at} status",
        f"  {at} plan gracetier --measure",
        f"  {at} swap gracetier@dies      a candidate that dies while booting: the cause, and production back",
        f"  {at} swap gracetier@hangs     one whose /health is 200 and that generates nothing",
        f"  {at} swap gracetier --keep    gracetier becomes production; rollback goes back",
        f"  {at} logs {report.swap}",
        f"  {at} audit log",
        f"Take it down: {at} demo --stop",
    ]


def _program() -> str:
    """How this very lanectl is called from here: a virtual environment's is often not on the path."""
    if shutil.which("lanectl") is not None:
        return "lanectl"
    called = Path(sys.argv[0])
    return shlex.quote(sys.argv[0]) if called.name == "lanectl" else f"{shlex.quote(sys.executable)} -m lanectl"


def _announced(settings: Settings, root: Path, words: tuple[str, ...]) -> Station:
    """Say which command comes now, and return the station on which it runs."""
    from lanectl import wiring

    render.err(f"$ {shlex.join(('lanectl', '--site', str(root), *words))}")
    return wiring.demo_station(settings, root, words)


def _agreed() -> bool:
    if not render.interactive():
        raise LaneError("the demo would make containers; nobody can be asked here", "add --yes", ExitCode.USAGE)
    return render.ask("Make an empty image and a few containers (demo-…) on the container engine?")


def _take_down(settings: Settings) -> int:
    from lanectl import wiring
    from lanectl.actions.demo import take_down

    station = wiring.build_station(settings)
    count = take_down(station)
    if settings.json:
        render.emit({"site": station.site.root, "removed": count})
    else:
        rest = f"rm -r {shlex.quote(str(station.site.root))}"
        render.out(f"containers stopped and removed: {count}; the rest goes with: {rest}")
    return ExitCode.OK
