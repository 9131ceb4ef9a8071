"""Containers as values: what an engine is told to create, and what it says it sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lanectl.core.serving import Restart

# Labels on every container lanectl makes. Names are recorded before use, so a container made by a call whose
# answer was lost is found by label.
LABEL_SWAP = "lanectl.swap"
LABEL_LANE = "lanectl.lane"
LABEL_ROLE = "lanectl.role"  # the service's name in its lane
LABEL_SPEC = "lanectl.spec-sha256"
LABEL_SITE = "lanectl.site"  # the site's id: two sites can share one engine
LABELS = (LABEL_SWAP, LABEL_LANE, LABEL_ROLE, LABEL_SPEC, LABEL_SITE)


class Status(StrEnum):
    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    REMOVING = "removing"
    EXITED = "exited"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class CreateArgs:
    """What makes one container: `name` and the Docker Engine API's create body (Config keys plus HostConfig).

    Both engines take this one form; the local engine refuses the keys it cannot honour. Secrets are references until
    the moment of creation.
    """

    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Container:
    """One container as the engine sees it. Times are the engine's RFC 3339 text, empty when it never happened.

    `devices` are CDI names. `exit_code` is None unless it ended; 137 is a kill, "out of memory" only if `oom_killed`.
    """

    id: str
    name: str
    image_id: str
    image_ref: str
    status: Status
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    created_at: str = ""
    started_at: str = ""
    finished_at: str = ""
    restart_count: int = 0
    restart: Restart = field(default_factory=Restart)
    labels: Mapping[str, str] = field(default_factory=dict)
    pid: int | None = None
    health: str | None = None
    devices: tuple[str, ...] = ()
    network_mode: str = ""

    @property
    def running(self) -> bool:
        """Running in the sense that matters: its processes exist (paused ones too)."""
        return self.status in (Status.RUNNING, Status.PAUSED)

    @property
    def active(self) -> bool:
        """Running, or about to be again: a container in restart back-off still counts."""
        return self.running or self.status in (Status.RESTARTING, Status.REMOVING)


@dataclass(frozen=True, slots=True)
class Image:
    """A local image: `id` is sha256:…, `digests` are repo@sha256:… names it is known by."""

    id: str
    digests: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Who the engine is. `id` is pinned in station.yaml. `cdi_devices` is None where the engine cannot tell."""

    kind: str
    id: str
    version: str
    endpoint: str
    cdi_devices: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a container ended: `how` is already | term | kill; `seconds` from the request to the proof that it exited."""

    how: str
    seconds: float
    exit_code: int | None
