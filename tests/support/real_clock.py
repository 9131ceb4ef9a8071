"""The machine's clock behind the Clock port, for tests with real parts."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class RealClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> str:
        return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
