"""The seams: what has more than one real implementation, or none that can be had on a developer's machine.

Every implementation, the in-memory fake included, passes the contract tests in tests/contract/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lanectl.core.container import Container, CreateArgs, EngineInfo, Image, Stopped
from lanectl.core.health import HttpSample, HttpTarget
from lanectl.core.serving import Restart


class LogStream(Protocol):
    """Log lines as they come. `close()` may be called from another thread and ends the iteration soon.

    Iterating raises `EngineUnknown` when the log breaks off before its end (the engine died).
    """

    def __iter__(self) -> Iterator[str]: ...

    def __next__(self) -> str: ...

    def close(self) -> None: ...


class ContainerEngine(Protocol):
    """A container engine. Every effect is "ensure", never "toggle": repeating a call that already happened is fine.

    Raise `Unreachable` when the engine cannot be reached, `EngineUnknown` when a call's outcome is unknown (look before
    acting again), `NotThere`, `NameTaken`, `DeviceUnknown`, else `EngineError` with the engine's own words.
    No call pulls an image. `ref` is an id or a name.
    """

    def info(self) -> EngineInfo:
        """Return who the engine is. Raise `Refused` when its id is not the pinned one."""
        ...

    def image(self, ref: str) -> Image | None:
        """Given `repo@sha256:…`, `sha256:…` or a tag, return the local image, None when it is not there."""
        ...

    def keep_image(self, image_id: str, tag: str) -> None:
        """Give the image a tag (`name:tag`) so that a prune cannot take it. Ensure. The local engine does nothing."""
        ...

    def drop_image_tag(self, tag: str) -> None:
        """Remove a keep-tag; the image stays if anything else names it. A missing tag is fine."""
        ...

    def create(self, args: CreateArgs) -> str:
        """Create (not start) a container, return its id. Raise `NameTaken`, `NotThere` (image), `EngineError`."""
        ...

    def start(self, ref: str) -> None:
        """Start it; already running is fine. Raise `DeviceUnknown`, `NotThere`, `EngineError`."""
        ...

    def stop(self, ref: str, grace_s: float) -> Stopped:
        """Ask it to end (its stop signal), wait `grace_s` by our own clock, then kill; return how it ended.

        Waits until the engine itself says the container is not running. Not running already is fine (`already`).
        Raise `EngineUnknown` when it still runs after the kill and a bounded wait (a ghost), `NotThere`.
        """
        ...

    def kill(self, ref: str) -> None:
        """SIGKILL it, paused or not; return once it is not running. Not running is fine. Raise as `stop`."""
        ...

    def rename(self, ref: str, name: str) -> None:
        """Give it this name; already so is fine. Raise `NameTaken`, `NotThere`."""
        ...

    def set_restart(self, ref: str, policy: Restart) -> None:
        """Set its restart policy. Raise `NotThere`."""
        ...

    def remove(self, ref: str) -> None:
        """Remove it (killing it if it runs), return once it is gone. Not there, "already in progress": fine."""
        ...

    def inspect(self, ref: str) -> Container | None:
        """Return the container, or None when the engine says there is none."""
        ...

    def containers(self, labels: Mapping[str, str] | None = None) -> tuple[Container, ...]:
        """Return all containers, stopped ones too, that carry every given label ("" matches any value)."""
        ...

    def recreate_args(self, ref: str) -> CreateArgs:
        """Return arguments that would make this same container again, image by id.

        They hold the raw environment: keep them in a 0600 file, never print them. Raise `NotThere`.
        """
        ...

    def logs(self, ref: str, *, since_start: bool = True, follow: bool = True) -> LogStream:
        """Return the complete log lines (stdout and stderr in order of arrival, no line ends, bad UTF-8 replaced).

        `since_start` leaves out lines of earlier runs. With `follow` it ends when the container ends. A last line
        without an end is yielded when the log ends. Raise `NotThere`.
        """
        ...

    def pids(self, ref: str) -> frozenset[int] | None:
        """Return the host pids of the container's processes; None where they cannot be read. Empty when not running."""
        ...

    def cdi_problem(self, image_id: str, devices: Sequence[str]) -> str | None:
        """Prove that the engine can inject these devices; return its own words when it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class PortOwner:
    """Who listens on a port. `pids` is None when a listener exists and its owner cannot be read."""

    listening: bool
    pids: frozenset[int] | None
    names: tuple[str, ...] = ()


class Prober(Protocol):
    """Looks at servers and ports. A look never raises for what it may find; it returns it."""

    def http(self, target: HttpTarget) -> HttpSample:
        """Climb the HTTP rungs in order (see core/health.py); stop at the first that fails."""
        ...

    def port(self, host: str, port: int) -> PortOwner:
        """Say whether anything listens on the port (any local address that would answer `host`), and who."""
        ...

    def can_bind(self, host: str, port: int) -> bool:
        """True when a server could bind the port now (SO_REUSEADDR, as servers do)."""
        ...


@dataclass(frozen=True, slots=True)
class GpuProcess:
    pid: int
    name: str
    used_mib: int | None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One look at one GPU. None means "cannot tell" (never 0). `error` says why when the look itself failed."""

    uuid: str
    used_mib: int | None
    processes: tuple[GpuProcess, ...] | None
    error: str | None = None


class Gpus(Protocol):
    """Reads GPUs, with a deadline: a driver that hangs costs a reading, never lanectl."""

    def uuids(self) -> tuple[str, ...] | None:
        """Return the UUIDs of the machine's GPUs; None when they cannot be read."""
        ...

    def read(self, uuid: str) -> GpuReading: ...


class Clock(Protocol):
    def monotonic(self) -> float: ...

    def wall(self) -> str:
        """Return the wall time in UTC, RFC 3339 with milliseconds, for people only."""
        ...

    def sleep(self, seconds: float) -> None: ...


class Jobs(Protocol):
    """Starts detached jobs that outlive lanectl."""

    def start(self, argv: Sequence[str], *, name: str, keep_fds: Sequence[int], log_path: str) -> int:
        """Start `argv` outside our session (and our systemd scope), keeping these descriptors; return its pid.

        Raise `LaneError` when it cannot be started.
        """
        ...
