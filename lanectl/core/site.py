"""What station.yaml says, as frozen values. A site is a directory: station.yaml, lanes/, maps/, state/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Which engine. docker: `endpoint` such as unix:///var/run/docker.sock and the pinned `daemon_id`, None while it is
    not pinned (preflight then says which id to write down). local: `cdi_spec_dirs`, where CDI specs are read."""

    kind: str
    endpoint: str = ""
    daemon_id: str | None = None
    cdi_spec_dirs: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by role. `idle_mib` is the card's recorded idle baseline."""

    role: str
    uuid: str
    idle_mib: int = 0


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret lives: exactly one of an environment variable or a 0600 file."""

    name: str
    env: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What preflight asks of the host. Sizes in bytes, times in seconds."""

    mem_available: int = 0  # MemAvailable once production is gone; 0 = not asked
    disk_free: int = 256 * 1024 * 1024  # journal, audit, logs and receipts of one swap, with room to spare
    swap_deadline_s: float = (
        4 * 3600.0
    )  # the whole of a swap; the guard restores when it passes. Boots take up to 74 min
    restore_attempts: int = 3  # then DARK


@dataclass(frozen=True, slots=True)
class Missing:
    """What station.yaml does not give yet: `name` such as `args.dsv41_extra`, `where` file:line, `hint` what to do."""

    name: str
    where: str
    hint: str


@dataclass(frozen=True, slots=True)
class Site:
    """One site. `root` is absolute; `id` distinguishes sites that share one engine (a digest of the root path).

    `lanes` are the lane names found in lanes/. `production` is the lane name that station.yaml seeds as production.
    `host` is the address the public port is bound to; the trial port is always on loopback.
    """

    root: str
    id: str
    name: str
    engine: EngineConfig
    host: str
    public_port: int
    trial_port: int
    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    secrets: Mapping[str, SecretRef] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)
    production: str | None = None
    reboot_recovery: str = "required"
    lanes: tuple[str, ...] = ()

    def client_host(self) -> str:
        """The address at which this machine reaches its own public port."""
        return reachable(self.host)


def reachable(host: str) -> str:
    """Given the address a server is bound to, return one at which this machine reaches it."""
    return LOOPBACK if host in ("0.0.0.0", "::", "") else host
