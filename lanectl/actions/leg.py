"""One forward leg under way, and what all its steps work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lanectl.actions.guard import Guard
from lanectl.actions.progress import Progress
from lanectl.actions.ready import ReadyReport
from lanectl.actions.station import Station
from lanectl.actions.watching import trip_of
from lanectl.core.container import Container, CreateArgs
from lanectl.core.lane import Lane, Service
from lanectl.core.owed import Owed, OwedService
from lanectl.core.plan import Step
from lanectl.errors import CandidateFailed
from lanectl.store.journal import Journal
from lanectl.store.watch import TripRecord

Effect = Callable[["Leg", Step], Mapping[str, Any] | None]


@dataclass
class Leg:
    """One forward leg under way.

    `wanted`: a candidate's lane, or the parked lane that a rollback wakes. `leaving`: what runs and makes room.
    `owed`: what comes back if this fails; the same as `leaving` unless that one tripped. `watched`: the candidate's
    server container, once its watchdog is armed.
    """

    station: Station
    journal: Journal
    wanted: Lane | Owed
    leaving: Owed | None
    owed: Owed | None
    check: Callable[[], None]
    progress: Progress
    guard: Guard
    creates: Mapping[str, CreateArgs] = field(default_factory=dict)
    profile: str | None = None
    verifies: bool = False
    watched: str | None = None
    ids: dict[str, str] = field(default_factory=dict)
    reports: dict[str, ReadyReport] = field(default_factory=dict)

    @property
    def lane(self) -> Lane:
        """The candidate's lane; a rollback has none."""
        if isinstance(self.wanted, Owed):
            raise AssertionError("a rollback boots no candidate")
        return self.wanted

    def service(self, name: str) -> Service:
        return next(service for service in self.lane.services if service.name == name)

    def leaving_service(self, name: str) -> OwedService:
        if self.leaving is None:
            raise AssertionError("nothing makes room")
        return next(service for service in self.leaving.services if service.name == name)

    def container(self, name: str) -> Container:
        """Look at a candidate. Raise `CandidateFailed` when it is gone."""
        container = self.station.engine.inspect(self.ids[name])
        if container is None:
            raise CandidateFailed(f"start:{name}", "EXITED", f"the candidate's {name} was removed behind our back")
        return container

    def checked(self) -> None:
        """The check of every wait: a person's interrupt, or a trip of the candidate."""
        self.check()
        if self.watched is not None:
            record = trip_of(self.station, self.watched)
            if record is not None:
                raise tripped("watchdog", record)


def tripped(step: str, record: TripRecord) -> CandidateFailed:
    """What a trip of the candidate means in a swap: it failed."""
    return CandidateFailed(step, "TRIPPED", f"the watchdog tripped: {record.rule}: {record.reason}")
