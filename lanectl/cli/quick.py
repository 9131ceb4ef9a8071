"""Reading the command line without pydantic: typer checks even a missing text with it, and its import takes 0.1 s.

A status that cron asks for every minute should not pay for that.
"""

from __future__ import annotations

from typing import Any

import typer


class _Plain:
    """Takes texts and flags as they are and turns numbers into numbers, where typer would build a pydantic adapter."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def coerce(self, value: Any, param: Any, ctx: typer.Context) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if isinstance(value, list | tuple):
            return tuple(value)
        try:
            return self._kind(value)
        except ValueError:
            raise typer.BadParameter(f"{value!r} is not a number", ctx=ctx, param=param) from None


_KINDS: dict[Any, type] = {str: str, list[str]: str, bool: bool, int: int, float: float}


def plain(command: Any) -> Any:
    """Give every parameter of a command and its subcommands its plain reading; return the command.

    A typer that knows no such attribute is not disturbed by it, only slower.
    """
    for param in command.get_params(typer.Context(command)):  # --help is among them
        kind = _KINDS.get(getattr(getattr(param, "type_descriptor", None), "annotation", None))
        if kind is not None:
            param._runtime_param = _Plain(kind)
    for one in getattr(command, "commands", {}).values():
        plain(one)
    return command
