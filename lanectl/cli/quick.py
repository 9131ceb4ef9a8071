"""Commands that start fast: typer checks even a missing text with pydantic, whose import takes 0.1 s."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _Plain:
    """Takes texts as they are and turns numbers into numbers; stands where typer would build a pydantic adapter."""

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


_KINDS: dict[Any, type] = {str: str, list[str]: str, int: int, float: float}


def _spare(params: list[Any]) -> None:
    """Give each parameter its plain reading. A typer that knows no such attribute is not disturbed by it."""
    for param in params:
        described = getattr(param, "type_descriptor", None)
        kind = _KINDS.get(getattr(described, "annotation", None))
        if kind is not None:
            param._runtime_param = _Plain(kind)


class QuickCommand(TyperCommand):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _spare(self.params)


class QuickGroup(TyperGroup):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _spare(self.params)
