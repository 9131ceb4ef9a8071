"""The machine's clock behind the `Clock` port."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """CLOCK_MONOTONIC for deadlines, wall time in UTC for people."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> str:
        return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
