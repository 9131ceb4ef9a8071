"""GPUs whose readings a test writes down, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from lanectl.ports import GpuProcess, GpuReading

UUID = "GPU-11111111-2222-3333-4444-555555555555"


def reading(used_mib: int | None, *pids: int, processes: bool = True, error: str | None = None) -> GpuReading:
    """A reading of `UUID`: `used_mib`, and a process for each of `pids` (None as a list without `processes`)."""
    listed = tuple(GpuProcess(pid, "VLLM::Worker", None) for pid in pids)
    return GpuReading(UUID, used_mib, listed if processes else None, error)


UNKNOWN = GpuReading(UUID, None, None, "N/A")


class FakeGpus:
    """Gives the readings in order, then the last one again and again. `asked` counts them."""

    def __init__(self, readings: Iterable[GpuReading], uuids: tuple[str, ...] | None = (UUID,)) -> None:
        self._readings = deque(readings)
        self._uuids = uuids
        self.asked = 0

    def uuids(self) -> tuple[str, ...] | None:
        return self._uuids

    def read(self, uuid: str) -> GpuReading:
        self.asked += 1
        return self._readings.popleft() if len(self._readings) > 1 else self._readings[0]
