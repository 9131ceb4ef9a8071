"""The files of one watchdog: `state/watch/<beginning of the server's container id>/`.

`spec.json`: what to watch, written by its owner before it starts. `control.json`: the owner's orders, numbered.
`status.json`: what the watchdog says of itself, some times a second. `tripped.json`: that it killed the lane, durable;
`observed.json`: that it would have (mode `observe`). A container keeps its id when it is parked, renamed, promoted and
started again, so its watchdog is found by it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from lanectl.core.codec import from_json, to_json
from lanectl.core.site import EngineConfig
from lanectl.core.watch import Counters, Mode, Rule, Sidecar
from lanectl.errors import LaneError
from lanectl.store.files import PRIVATE_FILE, StoreError, explained, read_json, write_all, write_json
from lanectl.store.process import ProcessId

KEY_LENGTH = 12  # characters of a container id, as engines show it

# What to run where a file is damaged. Only what a trip left is for a person to clear.
RECOVER = "run `lanectl recover`: it writes the watchdog's files again, and arms it where it does not live"
_CURES = {"tripped.json": "find out why it tripped (`watch.log` beside it); then `lanectl restart` clears it"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WatchedService:
    """One container of the lane. `first`: its first process; None while it has not started, or cannot be seen here."""

    name: str
    container_id: str
    first: ProcessId | None = None


@dataclass(frozen=True, slots=True)
class WatchSpec:
    """What to watch. `services` in the order in which they are killed: the server first, it holds the clients.
    `swap`: which one armed it. `fallback`: the lane to swap to after a trip; None: it stays dark.

    Complete in itself, so that a watcher can be replaced when station.yaml or a lane's file is being edited.
    """

    lane: str
    counters: str
    stall_s: float
    enforce: bool
    services: tuple[WatchedService, ...]
    engine: EngineConfig
    swap: str | None = None
    fallback: str | None = None


class Wish(StrEnum):
    """What the owner asks for: one of the modes, or the end: once the lane is gone, or because another takes over."""

    BOOT = Mode.BOOT.value
    SERVING = Mode.SERVING.value
    STANDBY = Mode.STANDBY.value
    END = "end"
    REPLACED = "replaced"

    @property
    def mode(self) -> Mode | None:
        """The mode it asks for, None for an end."""
        return None if self in (Wish.END, Wish.REPLACED) else Mode(self.value)


@dataclass(frozen=True, slots=True)
class Order:
    """`seq` counts up; the newest order is what holds. `services`: as they are now."""

    seq: int
    wish: Wish
    services: tuple[WatchedService, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """What a watchdog says. `looked_at`: monotonic seconds of its last look. `acked`: the newest order it has answered,
    `refused` why it did not follow it. `kills`: by service, how it can be killed: pidfd, engine, or why not.
    `supervisor` None: it died and could not be replaced. `ended`: why it watches no more. `watching`: what it watches,
    with the first processes that it knows."""

    mode: Mode
    watcher: ProcessId
    supervisor: ProcessId | None
    looked_at: float
    acked: int = 0
    refused: str = ""
    epoch: int = 1
    counters: Counters | None = None
    sidecar: Sidecar = Sidecar.UNKNOWN
    serving: bool = False
    kills: Mapping[str, str] = field(default_factory=dict)
    ended: str = ""
    watching: tuple[WatchedService, ...] = ()


@dataclass(frozen=True, slots=True)
class Kill:
    """One container's kill. Times are monotonic seconds. `by`: pidfd | engine; `gone` None: not (yet) known to be."""

    service: str
    container_id: str
    by: str
    sent: float
    gone: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TripRecord:
    """Why a lane was killed (`enforced`), or would have been. `mono`: monotonic seconds of the boot `boot_id`."""

    lane: str
    rule: Rule
    reason: str
    at: str
    mono: float
    boot_id: str
    mode: Mode
    epoch: int
    counters: Counters | None
    enforced: bool
    kills: tuple[Kill, ...] = ()


def watch_key(server_container_id: str) -> str:
    """Given the id of a lane's server container, return the name of its watchdog's directory."""
    return server_container_id[:KEY_LENGTH]


def watch_folders(watch: Path) -> tuple[Path, ...]:
    """Return the directories of all watchdogs in `state/watch`, by name. Raise `StoreError`."""
    with explained(watch, "list"):
        try:
            return tuple(sorted(entry for entry in watch.iterdir() if entry.is_dir()))
        except FileNotFoundError:
            return ()


@dataclass(frozen=True, slots=True)
class WatchFiles:
    """Reads and writes one watchdog's files. All raise `StoreError` for what cannot be read or written."""

    folder: Path

    @property
    def control(self) -> Path:
        """Where the owner's orders are; each replaces the file."""
        return self.folder / "control.json"

    @property
    def said(self) -> Path:
        """What the watchdog says of itself; each word replaces the file."""
        return self.folder / "status.json"

    @property
    def log(self) -> Path:
        """What the watchdog's processes say to their operator."""
        return self.folder / "watch.log"

    def spec(self) -> WatchSpec | None:
        return self._read("spec.json", WatchSpec)

    def write_spec(self, spec: WatchSpec) -> None:
        self._write("spec.json", spec)

    def order(self) -> Order | None:
        return self._read(self.control.name, Order)

    def write_order(self, order: Order) -> None:
        self._write(self.control.name, order)

    def status(self) -> Status | None:
        return self._read(self.said.name, Status)

    def write_status(self, status: Status) -> None:
        """Replace the status, whole but not durable: it says nothing any more once the machine has gone down."""
        path, temporary = self.said, self.folder / ".status.json.tmp"
        with explained(path, "write"):
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
            try:
                write_all(fd, json.dumps(to_json(status)).encode())
            finally:
                os.close(fd)
            temporary.replace(path)

    def drop_records(self) -> None:
        """Remove the records of trips, and nothing that a watchdog that lives needs. Raise `StoreError`."""
        self._remove("tripped.json", "observed.json")

    def tripped(self) -> TripRecord | None:
        return self._read("tripped.json", TripRecord)

    def observed(self) -> TripRecord | None:
        return self._read("observed.json", TripRecord)

    def write_trip(self, trip: TripRecord) -> None:
        self._write("tripped.json" if trip.enforced else "observed.json", trip)

    def clear(self) -> None:
        """Remove everything but the log: what an earlier watch of the same container left."""
        self._remove("status.json", "control.json", "spec.json", "tripped.json", "observed.json")

    def remove(self) -> None:
        """Remove all of it, the log too. Raise `StoreError`."""
        import shutil

        with explained(self.folder, "remove"):
            shutil.rmtree(self.folder)

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            data = read_json(self.folder / name)
        except StoreError as error:
            raise error if error.errno else StoreError(error.message, _CURES.get(name, RECOVER)) from error
        if data is None:
            return None
        try:
            return from_json(kind, data)
        except LaneError as error:
            message = f"{self.folder / name} cannot be understood: {error.message}"
            raise StoreError(message, _CURES.get(name, RECOVER)) from error

    def _remove(self, *names: str) -> None:
        for name in names:
            with explained(self.folder / name, "remove"):
                (self.folder / name).unlink(missing_ok=True)

    def _write(self, name: str, value: Any) -> None:
        write_json(self.folder / name, to_json(value))
