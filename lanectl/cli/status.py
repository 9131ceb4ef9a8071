"""`lanectl status` and `lanectl health`: look, and say it in few words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lanectl.cli import options, render
from lanectl.errors import ExitCode, LaneError

if TYPE_CHECKING:
    from lanectl.actions.health import HealthReport
    from lanectl.actions.status import StatusReport
    from lanectl.settings import Settings

# What the site's records say of a lane comes before what the ladder saw of it.
STATES = {ExitCode.DARK: "DARK", ExitCode.UNFINISHED: "UNFINISHED", ExitCode.TRIPPED: "TRIPPED"}
LONGEST_TIMEOUT_S = 24 * 3600.0  # a day: no completion takes so long, and the clock's arithmetic holds


def status(context: typer.Context) -> int:
    """Say what serves, and whether it answers a real request.

    Also: since when, who is at work, what the last swap did and where its numbers are. Exit code 0 well, 1 production
    is owed and not proven serving, 5 DARK, 6 an unfinished swap, 7 cannot tell, 8 tripped.
    """
    from lanectl import wiring
    from lanectl.actions.status import status as look

    settings = options.settings(context)
    report = look(wiring.build_station(settings))
    if settings.json:
        from lanectl.core.codec import to_json

        render.emit({**to_json(report), "exit_code": int(report.exit_code)})
    else:
        render.lines(list(_lines(report)))
    return report.exit_code


def _lines(report: StatusReport) -> Iterator[str]:
    from lanectl.cli.words import ago

    yield f"site        {report.site}" + (f" ({report.station})" if report.station else "")
    yield f"production  {_production(report)}"
    if report.serving is not None and report.serving.proven:
        by = f", put back by swap {report.serving.swap}" if report.serving.swap else ""
        yield f"            since {ago(report.serving.since)}{by}"
    if report.watch is not None:
        from lanectl.cli.watch import view_lines

        first, *more = view_lines(report.watch)
        yield f"watchdog    {first.partition(': ')[2]}"
        yield from (f"            {line.strip()}" for line in more)
    if report.open_swap is not None:
        swap = report.open_swap
        yield f"swap        {swap.swap}: {swap.lane} at {swap.phase}, begun {ago(swap.opened_at)}"
        if swap.stuck:
            yield f"DARK        {swap.owed or 'production'} is owed and could not be brought back: {swap.stuck}"
        elif not swap.working:
            yield "            left unfinished: nobody is working on it"
    if report.holder is not None:
        yield f"at work     {report.holder}"
    if report.last is not None:
        yield from _last(report)
    if report.warning:
        yield f"warning     {report.warning}"
    if report.next:
        yield f"next        {report.next}"


def _production(report: StatusReport) -> str:
    if report.production is None:
        return "nothing is recorded as production" + (f": {report.forgotten}" if report.forgotten else "")
    name = f"{report.production} on {report.address}" + (" (adopted)" if report.adopted else "")
    if report.tripped:
        return f"{name}: TRIPPED at {report.tripped}"
    if report.serving is None:
        return f"{name}: {'a swap is at work' if report.open_swap else report.desired}"
    if report.serving.proven:
        return f"{name}: serving, {report.serving.detail}"
    return f"{name}: NOT proven serving: {report.serving.reason}: {report.serving.detail}"


def _last(report: StatusReport) -> Iterator[str]:
    from lanectl.cli.words import ago

    if report.last is None:
        return
    last = report.last
    dark = f", {last.dark_s:.1f} s without service" if last.dark_s is not None else ""
    yield f"last swap   {last.swap}: {last.outcome}{dark}, ended {ago(last.closed_at)}"
    if last.failure is not None:
        told = f"{last.failure.step}: {last.failure.reason}: {last.failure.message}"
        yield from (f"            {line}" for line in told.splitlines())  # a refusal has a line for each reason
    if last.measured:
        yield f"            its numbers: {last.measured}"


def health(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="URL|LANE", help="A server, or a lane.", autocompletion=options.complete_lane)
    ],
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Else the first that /v1/models lists.")] = None,
    api_key_env: Annotated[str | None, typer.Option(metavar="VARIABLE", help="Holds the API key.")] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="For the completion (60).")] = None,
) -> int:
    """Ask a server for a real completion. Made for cron: silent and 0 when well, one line and another code when not.

    Exit code 0 well or in a swap that is in time, 1 down or wrong, 5 DARK, 7 cannot tell, 8 tripped.
    """
    settings = options.settings(context)
    if timeout is not None and not 0 < timeout <= LONGEST_TIMEOUT_S:  # nan is neither
        raise LaneError(f"--timeout must be above 0 and at most {LONGEST_TIMEOUT_S:.0f}")
    key = _api_key(api_key_env)
    if "://" in what:
        report = _url(what, model, key, timeout)
    elif model is not None or timeout is not None:
        raise LaneError("--model and --timeout go with a URL: a lane has its own")
    else:
        report = _lane(settings, what, key)
    if settings.json:
        from lanectl.core.codec import to_json

        render.emit({**to_json(report), "exit_code": int(report.exit_code)})
    elif report.exit_code is not ExitCode.OK:
        render.out(f"{what}: {STATES.get(report.exit_code, report.reason)}: {report.detail}")
    elif settings.verbose:
        render.out(f"{what}: {report.reason}: {report.detail} ({report.seconds:.2f} s)")
    return report.exit_code


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise LaneError(f"the variable {variable} is not set", "export it, or leave out --api-key-env")
    return key


def _url(url: str, model: str | None, key: str | None, timeout_s: float | None) -> HealthReport:
    from lanectl import wiring
    from lanectl.actions.health import check_url
    from lanectl.core.lane import Completion

    return check_url(
        url,
        prober=wiring.build_prober(),
        clock=wiring.build_clock(),
        model=model,
        api_key=key,
        completion=None if timeout_s is None else Completion(within_s=timeout_s),
    )


def _lane(settings: Settings, label: str, key: str | None) -> HealthReport:
    from lanectl import wiring
    from lanectl.actions.lane_health import lane_health

    return lane_health(wiring.build_station(settings), label, key)
