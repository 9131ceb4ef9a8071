"""`lanectl logs` and `lanectl audit log|verify`: what was said, and what was done."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from lanectl.cli import options, render
from lanectl.errors import ExitCode, LaneError

AUDIT_LINES = 20
LONG_LINE = 16 * 1024  # the engine cuts log lines there itself


def logs(
    context: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(metavar="[LANE|SWAP]", help="Else production.", autocompletion=options.complete_lane),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines.")] = False,
    last: Annotated[int | None, typer.Option("-n", metavar="N", help="Only the last N lines of each service.")] = None,
) -> int:
    """Print logs: of production, of a lane, of a past swap.

    What a candidate said is kept when its container is removed.
    """
    from lanectl import wiring
    from lanectl.actions.logs import logs as read
    from lanectl.core.log_lines import one_line

    settings = options.settings(context)
    _check_count(last)
    person = sys.stdout.isatty()
    for line in read(wiring.build_station(settings), what, follow=follow, last=last):
        if settings.json:
            render.emit_line({"service": line.service, "text": line.text})
        else:
            # A terminal gets no control characters from a log; a pipe gets the line as it is.
            render.out(f"{line.service} | {one_line(line.text, LONG_LINE) if person else line.text}")
    return ExitCode.OK


def audit_log(
    context: typer.Context,
    last: Annotated[int, typer.Option("-n", metavar="N", help="The last N lines.")] = AUDIT_LINES,
) -> int:
    """Print who did what, when, and how it ended."""
    from lanectl import wiring
    from lanectl.actions.audit_trail import newest

    settings = options.settings(context)
    _check_count(last)
    found = newest(wiring.state_dir(settings), last)
    if settings.json:
        render.emit({"entries": found})
    else:
        render.lines([_entry(entry) for entry in found])
    return ExitCode.OK


def audit_verify(context: typer.Context) -> int:
    """Check that no line was changed or removed.

    Every line must be readable, in sequence, and follow from the one before; exit code 1 if not.
    """
    from lanectl import wiring
    from lanectl.actions.audit_trail import check
    from lanectl.core.codec import to_json

    settings = options.settings(context)
    state = wiring.state_dir(settings)
    path = state.audit
    count, problems = check(state)
    code = ExitCode.FAILED if problems else ExitCode.OK
    if settings.json:
        render.emit({"path": str(path), "lines": count, "problems": to_json(problems), "exit_code": int(code)})
        return code
    for problem in problems:
        render.out(str(problem))
    render.out(f"{path}: {count} lines, {len(problems) or 'no'} problems")
    return code


def _entry(entry: dict[str, Any]) -> str:
    data = entry.get("data")
    details = " ".join(f"{key}={_word(value)}" for key, value in data.items()) if isinstance(data, dict) else ""
    who = f"{entry.get('user', '?')}@{entry.get('host', '?')}"
    return f"{entry.get('at', '?')} {who} {entry.get('command', '?')} {entry.get('event', '?')} {details}".rstrip()


def _word(value: Any) -> str:
    from lanectl.core.log_lines import one_line

    return one_line(" ".join(map(str, value)) if isinstance(value, list) else str(value))


def _check_count(count: int | None) -> None:
    if count is not None and count < 0:
        raise LaneError("-n takes a number of lines, 0 or more")
