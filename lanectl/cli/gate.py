"""`lanectl gate LANE GATE`: run a gate that needs a boot of its own, and record its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lanectl.cli import consent, options, render
from lanectl.cli.report import failure_lines, serving, timeline_lines

if TYPE_CHECKING:
    from lanectl.actions.gate import GateReport


def gate(
    context: typer.Context,
    lane: options.Lane,
    name: Annotated[str, typer.Argument(metavar="GATE", help="map-cosine")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before production is stopped.")] = False,
) -> int:
    """Judge a lane's map on a boot of its check variant.

    Production is put back afterwards. The verdict is recorded for that map and image, and `requires:` in a lane asks
    for it. Exit 0 when it passed, 1 when it failed or was inconclusive.
    """
    from lanectl import wiring
    from lanectl.actions.gate import CHECK_VARIANT
    from lanectl.actions.gate import gate as run_gate
    from lanectl.actions.interrupts import Interrupts
    from lanectl.cli import live

    settings = options.settings(context)
    station = wiring.build_station(settings)
    owed = station.production().owed
    if owed is not None:
        will = f"{owed.label} is stopped, {lane}@{CHECK_VARIANT} is booted and judged, and {owed.label} is put back."
        if not consent.agreed(owed.label, [will], yes=yes):
            return consent.declined()
    interrupts = Interrupts()
    with live.progress() as progress, interrupts.caught(progress.note):
        report = run_gate(station, lane, name, progress, interrupts)
    if settings.json:
        from lanectl.core.codec import to_json

        render.emit({**to_json(report), "exit_code": int(report.exit_code)})
    else:
        render.lines(_lines(report))
    return report.exit_code


def _lines(report: GateReport) -> list[str]:
    lines = []
    if report.result is None:
        lines += failure_lines(report.swap)
    else:
        value = "no value" if report.result.value is None else f"{report.result.value:g}"
        bar = "" if report.result.bar is None else f" (bar {report.result.bar:g})"
        lines += [
            f"{report.result.gate}: {report.result.verdict.upper()}: {value}{bar}",
            f"  {report.result.detail}",
            f"  recorded in {report.record}",
        ]
    return [*lines, serving(report.swap), "", *timeline_lines(report.swap)]
