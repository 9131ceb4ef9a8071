"""One journalled step: `begin` is durable before the effect, `done` or `failed` after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from lanectl.actions.station import Logger
from lanectl.core.journal import Kind
from lanectl.errors import CandidateFailed, GateFailed, Interrupted, LaneError
from lanectl.store.journal import Journal

Effect = Callable[[], Mapping[str, Any] | None]


def forward(journal: Journal, step: str, effect: Effect, check: Callable[[], None]) -> Mapping[str, Any]:
    """Run a step of the forward leg; return what is recorded of it.

    Raise `Interrupted` before the step when somebody asked us to stop, `LaneError` when the record cannot be made
    durable (the effect has not happened then), or whatever the effect raises, once that is recorded.
    """
    check()
    journal.append(Kind.BEGIN, step)
    try:
        result = dict(effect() or {})
    except Exception as error:
        with suppress(LaneError):  # the effect's own error is what the person must read
            journal.append(Kind.FAILED, step, failure_data(error))
        raise
    journal.append(Kind.DONE, step, result)
    return result


class WayBack:
    """Steps of the return leg: a record that cannot be made durable is logged and never stops a restore."""

    def __init__(self, journal: Journal, log: Logger) -> None:
        self._journal = journal
        self._log = log

    def record(self, kind: Kind, step: str = "", data: Mapping[str, Any] | None = None, attempt: int = 1) -> bool:
        """Append a record; return whether it is durable."""
        try:
            self._journal.append(kind, step, data, attempt)
        except LaneError as error:
            self._log.error("journal append failed; the restore goes on", step=step, error=error.message)
            return False
        return True

    def run(self, step: str, effect: Effect, attempt: int = 1) -> Mapping[str, Any]:
        """Run a step; return what is recorded of it. Raise whatever the effect raises, once that is recorded."""
        self.record(Kind.BEGIN, step, attempt=attempt)
        try:
            result = dict(effect() or {})
        except Exception as error:
            self.record(Kind.FAILED, step, {**failure_data(error), "back": True}, attempt)
            raise
        self.record(Kind.DONE, step, result, attempt)
        return result


def failure_data(error: BaseException) -> dict[str, Any]:
    """Return what the journal keeps of an error: reason code, message, and the log's tail where there is one."""
    data: dict[str, Any] = {"reason": type(error).__name__, "message": str(error)}
    if isinstance(error, CandidateFailed):
        data |= {"reason": error.reason, "tail": list(error.tail)}
    if isinstance(error, GateFailed):
        data |= error.verdict
    if isinstance(error, Interrupted):
        data["interrupted"] = True
    return data
