"""A lane as frozen values: what the spec reader makes and everything else reads.

All durations are seconds (float), all sizes bytes (int), all paths absolute strings. A value that station.yaml
does not give yet stays as its `${...}` text and is listed in `Lane.missing`; such a lane can be shown, never swapped.
Secrets stay as `${secrets.NAME}` or `${env_file:PATH:KEY}` text until the moment a container is created.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Compose's default is 10 s; a server that frees 250 GB needs more. station-level default, each lane may set its own.
DEFAULT_STOP_GRACE_S = 30.0
DEFAULT_READY_TIMEOUT_S = 1800.0  # first boots of the seeds' lanes take up to 30 minutes
DEFAULT_COMPLETION_WITHIN_S = 60.0
DEFAULT_RELEASE_ABOVE_IDLE_MIB = 1024  # an idle GB300 shows about 22 MiB; 1 GiB is far below any model
DEFAULT_RELEASE_STABLE_S = 5.0
DEFAULT_RELEASE_WITHIN_S = 120.0  # the public stop scripts poll for 120 s before they call memory stranded


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
class Restart:
    """Docker's restart policy: no | always | unless-stopped | on-failure (with max_retries)."""

    name: str = "no"
    max_retries: int = 0


@dataclass(frozen=True, slots=True)
class Logging:
    """Bounded logs: a default is set so that no lane can fill the disk."""

    driver: str = "json-file"
    options: tuple[tuple[str, str], ...] = (("max-file", "3"), ("max-size", "64m"))


@dataclass(frozen=True, slots=True)
class Completion:
    """A real completion that must come back: `max_tokens` tokens `within_s` seconds."""

    max_tokens: int = 1
    within_s: float = DEFAULT_COMPLETION_WITHIN_S


@dataclass(frozen=True, slots=True)
class Ready:
    """When a service counts as ready; see core/health.py for the ladder.

    `log`: a regex a log line must match. `fatal`: regexes that end the wait at once. `health`: a path that must answer
    exactly `health_status`. `models`: /v1/models must list the lane's served_model (and max_model_len, where given).
    `completion`: a real completion. `api_key`: a secret reference, sent as a bearer token.
    """

    log: str | None = None
    fatal: tuple[str, ...] = ()
    timeout_s: float = DEFAULT_READY_TIMEOUT_S
    health: str | None = None
    health_status: int = 200
    models: bool = False
    completion: Completion | None = None
    api_key: str | None = None

    @property
    def speaks_http(self) -> bool:
        return self.health is not None or self.models or self.completion is not None


@dataclass(frozen=True, slots=True)
class Fact:
    """A boot fact read from the log: group 1 of `log` (thousands commas removed), or the line when it has no group."""

    name: str
    log: str
    required: bool = False
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """When the service's GPU counts as released: used <= idle baseline + above_idle_mib, stable_s long, within_s."""

    role: str
    uuid: str
    above_idle_mib: int = DEFAULT_RELEASE_ABOVE_IDLE_MIB
    stable_s: float = DEFAULT_RELEASE_STABLE_S
    within_s: float = DEFAULT_RELEASE_WITHIN_S


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
class Drain:
    idle_for_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Watchdog:
    """Parsed and checked now; a swap of a lane that has one is refused until the watchdog is built."""

    counters: str
    stall_s: float
    mode: str
    on_trip: str
    spins_service: str | None = None
    spins_variable: str | None = None
    spins_at_least: int | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """What station.yaml does not give yet: `name` such as `args.dsv41_extra`, `where` file:line, `hint` what to do."""

    name: str
    where: str
    hint: str


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
