"""Asking before a serving production is touched."""

from __future__ import annotations

from collections.abc import Sequence

from lanectl.cli import render
from lanectl.errors import ExitCode, LaneError


def agreed(stops: str, lines: Sequence[str], *, yes: bool) -> bool:
    """Given the lane that would be stopped and what will happen, return whether the operator agrees.

    `yes` answers without asking. Raise `LaneError` (exit 2) where nobody can be asked.
    """
    if yes:
        return True
    if not render.interactive():
        raise LaneError(
            f"{stops} is production and would be stopped; nobody can be asked here",
            "add --yes; `lanectl plan` shows what a swap would do",
            ExitCode.USAGE,
        )
    for line in lines:
        render.err(line)
    return render.ask("Go on?")


def declined() -> ExitCode:
    """Say that nothing was done; return the exit code of that."""
    render.err("nothing was touched")
    return ExitCode.REFUSED
