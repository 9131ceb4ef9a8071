"""Let production finish what it is answering, for a bounded time, before it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanectl.actions.progress import Progress
from lanectl.actions.station import Station
from lanectl.core.owed import Owed
from lanectl.core.serving import Drain

LOOK_EVERY_S = 0.5


def drain(station: Station, owed: Owed, policy: Drain, check: Callable[[], None], progress: Progress) -> dict[str, Any]:
    """Wait until production has been idle (nothing running or waiting) for `idle_for_s`, at most `deadline_s`.

    Return how long it took and how many requests are cut when the deadline passes; `cut` is None when the server
    does not say (a failed look counts as busy: fail closed, bounded).
    """
    began = station.clock.monotonic()
    idle_since: float | None = None  # the first look of an unbroken row of idle ones: before it nothing is known
    key = station.api_key(owed.server.ready.api_key if owed.server.ready else None)
    while True:
        check()
        in_flight = station.in_flight(f"http://{owed.host}:{owed.port}", key)
        now = station.clock.monotonic()
        if in_flight != 0:
            idle_since = None
        elif idle_since is None:
            idle_since = now
        if idle_since is not None and now - idle_since >= policy.idle_for_s:
            return {"seconds": round(now - began, 3), "cut": 0}
        if now - began >= policy.deadline_s:
            return {"seconds": round(now - began, 3), "cut": in_flight}
        progress.ticker(f"draining: {in_flight if in_flight is not None else 'unknown'} requests in flight")
        station.clock.sleep(LOOK_EVERY_S)
