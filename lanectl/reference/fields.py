"""A JSON object's fields, taken out by name and type, and the error that says which one is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ApiError(Exception):
    """A request that cannot be served: the HTTP status, OpenAI's error type, and what is wrong."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    def payload(self) -> dict[str, Any]:
        """The error in OpenAI's shape."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}}


class Fields:
    """A JSON object whose fields are taken out by name and type; null is the same as absent."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def given(self, name: str) -> bool:
        """Whether the field is there."""
        return self._fields.get(name) is not None

    def value(self, name: str) -> Any:
        """The field as it is, None if it is absent."""
        return self._fields.get(name)

    def text(self, name: str, default: str) -> str:
        """The field as a string. This and all that follow raise ApiError (400) naming the field if it is not one."""
        return str(self._checked(name, default, lambda value: isinstance(value, str), "a string"))

    def flag(self, name: str) -> bool:
        """The field as true or false, false if it is absent."""
        return bool(self._checked(name, False, lambda value: isinstance(value, bool), "true or false"))

    def mapping(self, name: str) -> dict[str, Any]:
        """The field as an object, empty if it is absent."""
        return dict(self._checked(name, {}, lambda value: isinstance(value, dict), "an object"))

    def whole(self, name: str, default: int, least: int, most: int = 2**31) -> int:
        """The field as a whole number within bounds."""
        expected = f"a whole number from {least} to {most}"
        return int(self._checked(name, default, lambda value: type(value) is int and least <= value <= most, expected))

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """The field as a number within bounds."""

        def fits(value: Any) -> bool:
            return type(value) in (int, float) and least <= value <= most

        return float(self._checked(name, default, fits, f"a number from {least} to {most}"))

    def _checked(self, name: str, default: Any, fits: Callable[[Any], bool], expected: str) -> Any:
        value = self._fields.get(name)
        if value is None:
            return default
        if not fits(value):
            raise ApiError(400, f"`{name}` must be {expected}.", param=name)
        return value
