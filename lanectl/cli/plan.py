"""`lanectl plan`: what a swap would do, in full; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lanectl.cli import options, render

if TYPE_CHECKING:
    from lanectl.actions.plan import Plan
    from lanectl.core.plan import Step


def plan(
    context: typer.Context,
    lane: options.Lane,
    measure: Annotated[bool, typer.Option("--measure", help="As for swap.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="As for swap.")] = False,
    from_dark: Annotated[bool, typer.Option("--from-dark", help="As for swap.")] = False,
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="As for swap.")] = None,
) -> int:
    """Show what a swap would do, every call of it; change nothing.

    Also what would stop it, how production differs from its spec, and the expected outage. Exit code 3 when preflight
    would refuse it; all reasons are listed.
    """
    from lanectl import wiring
    from lanectl.actions.plan import make_plan
    from lanectl.actions.swap import SwapRequest
    from lanectl.core.codec import to_json

    settings = options.settings(context)
    if profile is not None:
        wiring.check_profile(profile)
    made = make_plan(wiring.build_station(settings), SwapRequest(lane, measure, keep, from_dark, profile))
    if settings.json:
        render.emit({**to_json(made), "exit_code": int(made.exit_code)})
    else:
        render.lines(list(_lines(made)))
    return made.exit_code


def _lines(made: Plan) -> Iterator[str]:
    from lanectl.actions.outlook import outage_text

    yield f"{made.lane}: {made.summary}"
    if made.stops:
        yield f"{made.stops} would be stopped. Expected outage: {outage_text(made.outage, made.lane)}."
    else:
        yield "No serving production would be stopped."
    yield ""
    yield "Forward:"
    yield from _steps(made.forward)
    yield "The way back, when nothing goes wrong:"
    yield from _steps(made.back)
    yield "Equivalent commands (secrets are references):"
    for service, run in made.runs.items():
        yield f"  {service}: {run}"
    yield ""
    yield from _difference_lines(made)
    yield ""
    yield "How long things may take:"
    yield from _wait_lines(made)
    yield ""
    yield from _verdict_lines(made)


def _steps(steps: tuple[Step, ...]) -> Iterator[str]:
    phase = ""
    for step in steps:
        yield f"  {step.phase if step.phase != phase else '':<12} {step.text}"
        phase = step.phase
        if step.call:
            yield f"  {'':<12}   {step.call}"
    yield ""


def _difference_lines(made: Plan) -> Iterator[str]:
    if made.no_difference:
        yield f"Production against its spec: not known, {made.no_difference}"
        return
    yield f"Production {made.owed} against its spec: {'differs' if made.differences else 'no difference'}"
    for one in made.differences:
        yield f"  {one.service}: {one.key}"
        yield f"    spec:    {one.spec}"
        yield f"    running: {one.running}"


def _wait_lines(made: Plan) -> list[str]:
    from lanectl.cli.words import duration

    return render.columns([(wait.what, duration(wait.seconds)) for wait in made.waits])


def _verdict_lines(made: Plan) -> Iterator[str]:
    for notice in made.notices:
        yield f"note: {notice}"
    if not made.problems:
        yield "Preflight has no objection now; the swap checks again."
        return
    yield "Preflight would refuse it (exit 3):"
    for problem in made.problems:
        yield f"  {problem}"
