"""How a swap (or a rollback, a start, a restart) ended, for a person or as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lanectl.cli import render
from lanectl.errors import ExitCode

if TYPE_CHECKING:
    from lanectl.actions.report import SwapReport
    from lanectl.settings import Settings


def show(report: SwapReport, settings: Settings) -> int:
    """Print how it ended; return its exit code, which stands whatever becomes of the output."""
    try:
        if settings.json:
            from lanectl.core.codec import to_json

            render.emit({**to_json(report), "exit_code": int(report.exit_code)})
        else:
            _show(report, f"lanectl --site {shlex.quote(settings.site)}" if settings.site else "lanectl")
    except render.Unwritten as error:
        render.err(f"{error.message}; it is in {report.folder}")
    return report.exit_code


def _show(report: SwapReport, lanectl: str) -> None:
    if report.failure is not None:
        render.lines(failure_lines(report))
    render.out(f"{report.lane}: {report.outcome}. {serving(report)}")
    render.out()
    render.lines(timeline_lines(report))
    if report.measured is not None:
        render.out()
        render.lines(measured_lines(report))
    for notice in report.notices:
        render.out(f"  note: {notice}")
    render.out()
    render.out(f"  everything about it: {report.folder}")
    render.out(f"  next: {lanectl} status · {lanectl} logs {report.swap} · {lanectl} audit log")


def failure_lines(report: SwapReport) -> list[str]:
    """Return what went wrong: the cause first, in the log's own words, then the log's tail."""
    if report.failure is None:
        return []
    if report.exit_code is ExitCode.INTERRUPTED:
        return [f"{report.lane}: {report.failure.message}"]
    head = f"{report.lane} failed at {report.failure.step}: {report.failure.reason}: {report.failure.message}"
    return [head, *(f"  | {line}" for line in report.tail[-render.TAIL_LINES :])]


def serving(report: SwapReport) -> str:
    """Return in one sentence what serves now."""
    if report.outcome == "refused":
        return f"Nothing was touched{f': {report.restored} is production as before' if report.restored else ''}."
    if report.restored is None:
        return "Nothing was owed when it began: nothing serves now."
    if report.outcome in ("promoted", "started"):
        return f"{report.restored} is production and serving: it answered a real request."
    return f"{report.restored} is restored and serving: it answered a real request."


def timeline_lines(report: SwapReport, extra: Sequence[tuple[str, str, str]] = ()) -> list[str]:
    """Return the timeline: each phase and how long it took, and how long nothing served; `extra` rows come last."""
    rows = [("phase", "seconds", "")]
    rows += [(phase.phase, f"{phase.seconds:.2f}", "") for phase in report.timeline.phases]
    rows.append(("in all", f"{report.timeline.total_s:.2f}", ""))
    dark = report.timeline.dark_s
    if dark is not None:
        rows.append(("dark time", f"{dark:.2f}", "from the order to stop production until a real request was answered"))
    return render.columns([*rows, *extra], right=[1])


def measured_lines(report: SwapReport) -> list[str]:
    """Return the measured table and what must be known beside it."""
    from lanectl import wiring

    if report.measured is None:
        return []
    results = report.measured["results"]
    rows, notes = wiring.measured_table(results)
    lines = [f"  measured over HTTP, profile {results['profile']}: {results['summary']}"]
    lines += render.columns(rows, right=[1], indent="    ")
    return [*lines, *(f"    note: {note}" for note in notes)]
