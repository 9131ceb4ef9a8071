"""What preflight looks at: one swap that is asked for, and what the engine shows."""

from __future__ import annotations

from dataclasses import dataclass

from lanectl.actions.station import Station
from lanectl.core.container import Container, EngineInfo
from lanectl.core.lane import Lane
from lanectl.core.owed import Owed


@dataclass(frozen=True)
class Case:
    station: Station
    lane: Lane
    owed: Owed | None
    keep: bool
    from_dark: bool
    engine: EngineInfo
    containers: tuple[Container, ...]
    excused: tuple[str, ...] = ()

    def owned(self) -> frozenset[str]:
        return self.owed.container_ids if self.owed else frozenset()
