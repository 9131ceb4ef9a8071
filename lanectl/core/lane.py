"""A lane as frozen values: what the spec reader makes and everything else reads.

All durations are seconds (float), all sizes bytes (int), all paths absolute strings. A value that station.yaml
does not give yet stays as its `${...}` text and is listed in `Lane.missing`; such a lane can be shown, never swapped.
Secrets stay as `${secrets.NAME}` or `${env_file:PATH:KEY}` text until the moment a container is created.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lanectl.core.serving import Completion, Drain, Fact, GpuMemory, Ready, Restart, Watchdog
from lanectl.core.site import Missing

# A lane's values, all of them: those of core/serving.py too.
__all__ = [
    "DEFAULT_STOP_GRACE_S",
    "Completion",
    "Device",
    "Drain",
    "Fact",
    "GpuMemory",
    "Lane",
    "Logging",
    "MapRef",
    "Missing",
    "Mount",
    "PortMap",
    "Ready",
    "Restart",
    "Service",
    "Tmpfs",
    "Ulimit",
    "Watchdog",
]

# Compose's default is 10 s; a server that frees 250 GB needs more. station-level default, each lane may set its own.
DEFAULT_STOP_GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class Device:
    """A CDI device by its qualified name, e.g. `nvidia.com/gpu=GPU-…`. UUIDs only."""

    qualified: str

    @property
    def name(self) -> str:
        return self.qualified.partition("=")[2]


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class PortMap:
    """A published port (bridge networks only). `host_ip` defaults to loopback: nothing is published by accident."""

    container: int
    host: int
    host_ip: str = "127.0.0.1"
    protocol: str = "tcp"


@dataclass(frozen=True, slots=True)
class Ulimit:
    name: str
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class Tmpfs:
    target: str
    options: str = ""


@dataclass(frozen=True, slots=True)
class Logging:
    """Bounded logs: a default is set so that no lane can fill the disk."""

    driver: str = "json-file"
    options: tuple[tuple[str, str], ...] = (("max-file", "3"), ("max-size", "64m"))


@dataclass(frozen=True, slots=True)
class Service:
    """One container of a lane; the keys and their meaning are the Compose Specification's.

    `environment` is in spec order; `env_files` are absolute paths whose values are read when the container is made.
    `depends_on` names services of the same lane.
    """

    name: str
    container_name: str
    image: str
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    environment: tuple[tuple[str, str], ...] = ()
    env_files: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[Device, ...] = ()
    ipc: str | None = None
    network_mode: str | None = None
    ports: tuple[PortMap, ...] = ()
    ulimits: tuple[Ulimit, ...] = ()
    cap_add: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()
    shm_size: int | None = None
    tmpfs: tuple[Tmpfs, ...] = ()
    user: str | None = None
    working_dir: str | None = None
    depends_on: tuple[str, ...] = ()
    restart: Restart = field(default_factory=Restart)
    logging: Logging = field(default_factory=Logging)
    stop_grace_s: float = DEFAULT_STOP_GRACE_S
    stop_signal: str | None = None
    init: bool = False
    ready: Ready | None = None
    facts: tuple[Fact, ...] = ()
    memory: GpuMemory | None = None


@dataclass(frozen=True, slots=True)
class MapRef:
    """One expert map, bound read-only at `mount` into each of `services`. `sha256`: the manifest's, None = unlisted."""

    file: str
    mount: str
    services: tuple[str, ...]
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane (and variant) resolved for one listen address.

    `services` are in start order (a service after everything it depends on); stop order is the reverse.
    `sha256` is the digest of the resolved lane (secrets as references), independent of host and port, so that the
    trial and the public rendering of one spec agree.
    """

    name: str
    variant: str | None
    summary: str
    served_model: str
    max_model_len: int | None
    host: str
    port: int
    services: tuple[Service, ...]
    map: MapRef | None = None
    shm: tuple[str, ...] = ()
    watchdog: Watchdog | None = None
    drain: Drain | None = None
    drop_page_cache: bool = False
    requires: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    stable_for_s: float = 0.0
    measure_profile: str | None = None
    fallback: str | None = None
    sha256: str = ""
    missing: tuple[Missing, ...] = ()

    @property
    def label(self) -> str:
        """`lane` or `lane@variant`."""
        return f"{self.name}@{self.variant}" if self.variant else self.name

    @property
    def server(self) -> Service:
        """The service clients talk to: the last one in start order whose readiness is over HTTP."""
        for service in reversed(self.services):
            if service.ready is not None and service.ready.speaks_http:
                return service
        return self.services[-1]
