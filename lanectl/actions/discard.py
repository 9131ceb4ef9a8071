"""Remove one container that a swap made and nobody is owed: stop, then kill, keep its log, remove."""

from __future__ import annotations

from collections import deque
from typing import Any

from lanectl.actions.station import Station
from lanectl.core.container import LABEL_ROLE, Container, Status
from lanectl.core.journal import SwapState
from lanectl.core.lane import DEFAULT_STOP_GRACE_S
from lanectl.errors import LaneError
from lanectl.store.files import ensure_dir, write_atomic

# The end of a log says why it ended. 20,000 lines of some 100 bytes are 2 MB, the most one saved log takes.
KEPT_LOG_LINES = 20_000


def discard(station: Station, state: SwapState, container: Container) -> dict[str, Any]:
    """Stop, keep the log of, and remove a stray; return how it ended. A container that is gone already is fine."""
    stopped = None
    if container.status is not Status.CREATED:
        stopped = station.engine.stop(container.id, _grace(state, container))
        save_log(station, state.swap, container.id, container.labels.get(LABEL_ROLE) or container.name)
    station.engine.remove(container.id)
    return {"id": container.id, "how": stopped.how if stopped else "never started"}


def save_log(station: Station, swap: str, container_id: str, name: str) -> None:
    """Keep the end of a container's log in the swap's folder. Nothing that goes wrong here may stop a restore."""
    try:
        stream = station.engine.logs(container_id, follow=False)
        lines = deque(stream, maxlen=KEPT_LOG_LINES)
        ensure_dir(station.state.logs(swap))
        write_atomic(station.state.logs(swap) / f"{name}.log", "".join(f"{line}\n" for line in lines).encode())
    except LaneError as error:
        station.log.warning("a log could not be kept", container=name, error=error.message)


def _grace(state: SwapState, container: Container) -> float:
    for planned in state.candidates:
        if planned.service == container.labels.get(LABEL_ROLE):
            return planned.stop_grace_s
    return DEFAULT_STOP_GRACE_S
