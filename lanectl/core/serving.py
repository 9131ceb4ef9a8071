"""How a lane is to serve, as frozen values: what is still asked of it once its containers exist.

Part of a lane's spec, and of what is owed. Apart from core/lane.py, whose other values only making containers needs:
reading what is production is quicker without them.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_READY_TIMEOUT_S = 1800.0  # first boots of the seeds' lanes take up to 30 minutes
DEFAULT_COMPLETION_WITHIN_S = 60.0
DEFAULT_RELEASE_ABOVE_IDLE_MIB = 1024  # an idle GB300 shows about 22 MiB; 1 GiB is far below any model
DEFAULT_RELEASE_STABLE_S = 5.0
DEFAULT_RELEASE_WITHIN_S = 120.0  # the public stop scripts poll for 120 s before they call memory stranded


@dataclass(frozen=True, slots=True)
class Restart:
    """Docker's restart policy: no | always | unless-stopped | on-failure (with max_retries)."""

    name: str = "no"
    max_retries: int = 0


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
class Drain:
    idle_for_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Watchdog:
    """What kills the lane rather than let it lie; see core/watch.py. `spins_…`: where the server's own limit is set."""

    counters: str
    stall_s: float
    mode: str
    on_trip: str
    spins_service: str | None = None
    spins_variable: str | None = None
    spins_at_least: int | None = None
