"""The operator's log: structlog on stderr, JSON when that is not a terminal. Results never go through it."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import Any

LEVELS = {"warning": 30, "info": 20}  # structlog takes the numbers of the standard library's levels


class OperatorLog:
    """Logs in the words of `actions.station.Logger`. Nothing is imported until there is something to say.

    Never raises: a closed terminal or a full disk behind stderr must not stop a restore.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self._level = LEVELS["info" if verbose else "warning"]
        self._logger: Any = None

    def info(self, event: str, **details: Any) -> None:
        self._real().info(event, **details)

    def warning(self, event: str, **details: Any) -> None:
        self._real().warning(event, **details)

    def error(self, event: str, **details: Any) -> None:
        self._real().error(event, **details)

    def _real(self) -> Any:
        if self._logger is None:
            import structlog

            person = sys.stderr.isatty()
            self._logger = structlog.wrap_logger(
                _Stderr(),
                processors=[
                    structlog.processors.add_log_level,
                    structlog.processors.TimeStamper(fmt="%H:%M:%S" if person else "iso", utc=not person),
                    _for_a_person if person else structlog.processors.JSONRenderer(default=str),
                ],
                wrapper_class=structlog.make_filtering_bound_logger(self._level),
            )
        return self._logger


class _Stderr:
    """The end of the line: whatever sys.stderr is at that moment (a live display may stand in its place)."""

    def msg(self, text: str) -> None:
        try:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass

    info = warning = error = msg


def _for_a_person(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> str:
    head = f"{entry.pop('timestamp')} {entry.pop('level')}: {entry.pop('event')}"
    return "  ".join([head, *(f"{key}={value}" for key, value in entry.items())])
