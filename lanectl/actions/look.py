"""One look at a service: its container, the owner of its port, and the HTTP rungs. Decisions are core/health.py's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lanectl.core.container import Container
from lanectl.core.health import (
    HttpSample,
    HttpTarget,
    Owner,
    Rung,
    Sample,
    Verdict,
    another_run,
    judge,
    judge_before_http,
    owner_of,
)
from lanectl.core.serving import Ready
from lanectl.errors import LaneError

if TYPE_CHECKING:
    from lanectl.actions.station import Station
    from lanectl.core.owed import Owed, OwedService
    from lanectl.ports import ContainerEngine, PortOwner, Prober
    from lanectl.probes.logs import LogWatch, ReadyService

LOOPBACK_OF = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
HOST_NETWORK = ("host", "")  # "": the engine does not say; then the listener has to be one of the container's


@dataclass(frozen=True, slots=True)
class Served:
    """What a lane's HTTP service must answer, and where. `host` may be a wildcard; `api_key` is the secret itself."""

    host: str
    port: int
    model: str
    max_model_len: int | None
    api_key: str | None

    @property
    def base_url(self) -> str:
        """The URL at which this machine reaches the service."""
        host = LOOPBACK_OF.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def served(station: Station, owed: Owed, service: OwedService) -> Served:
    """Return what a service of an owed lane must answer, and where."""
    return Served(
        host=owed.host,
        port=owed.port,
        model=owed.served_model,
        max_model_len=owed.max_model_len,
        api_key=station.api_key(service.ready.api_key if service.ready else None),
    )


def target_of(served: Served, ready: Ready) -> HttpTarget:
    """Given what is served and the spec's readiness, return what to ask over HTTP."""
    return HttpTarget(
        base_url=served.base_url,
        health=ready.health,
        health_status=ready.health_status,
        models=ready.models,
        model=served.model,
        max_model_len=served.max_model_len,
        completion=ready.completion,
        api_key=served.api_key,
    )


def _knock(target: HttpTarget) -> HttpTarget:
    """Return a question that tells whether anybody answers at all, and tells a stranger nothing.

    Asked until the port's owner is known: reading who that is can cost as much as looking through every process's
    descriptors (6 ms for 140 processes), and a refused connection costs next to nothing.
    """
    return replace(target, health=target.health or "/", models=False, completion=None, model="", api_key=None)


@dataclass(frozen=True, slots=True)
class Asked:
    """What one climb beyond the container and the log saw. `http` None: not asked, the port's owner is in doubt."""

    owner: Owner | None = None
    owner_detail: str = ""
    http: HttpSample | None = None


class Eyes:
    """Looks at one service again and again, and remembers what need not be looked at twice.

    `inspect` and `sample` belong to one thread; `ask` may run in another meanwhile (the engine is used from both).
    """

    def __init__(
        self,
        engine: ContainerEngine,
        prober: Prober,
        container_id: str,
        service: ReadyService,
        served: Served,
        port_was_free: bool,
    ) -> None:
        self._engine = engine
        self._prober = prober
        self._id = container_id
        self._served = served
        self._port_was_free = port_was_free
        self._target = target_of(served, service.ready) if service.ready and service.ready.speaks_http else None
        self._first: Container | None = None
        self._now: Container | None = None
        self._gone = False
        self._engine_error = ""
        self._owner: Owner | None = None
        self._strangers: frozenset[int] = frozenset()

    def inspect(self) -> None:
        """Ask the engine for the container. That it cannot be asked is a finding, not an error."""
        try:
            container = self._engine.inspect(self._id)
        except LaneError as error:
            self._engine_error = error.message
            return
        self._engine_error = ""
        self._gone = container is None
        self._now = container
        self._first = self._first or container

    def ask(self, *, listens: bool = False) -> Asked:
        """Find out who owns the port, then climb the HTTP rungs: a stranger is sent neither a key nor a prompt.

        `listens`: somebody most likely does, so whose port it is comes first. Else a knock does: a server that is there
        would be asked twice by it, and one that hangs be waited for twice.
        """
        if self._target is None:
            return Asked()
        if self._owner is None:
            seen = self._port() if listens else None
            if seen is None or not seen.listening:
                knock = self._prober.http(_knock(self._target))
                if knock.failed is Rung.PORT:
                    return Asked(http=knock)
                seen = self._port()
            doubt = self._judge_owner(seen)
            if doubt:
                return doubt
        return Asked(self._owner, "", self._prober.http(self._target))

    def _port(self) -> PortOwner:
        return self._prober.port(self._served.host, self._served.port)

    def sample(self, watch: LogWatch | None = None, asked: Asked | None = None) -> Sample:
        """Return everything seen. Without a `watch` the log counts as not looked at."""
        asked = asked or Asked()
        return Sample(
            container=self._now,
            gone=self._gone,
            engine_error=self._engine_error,
            restarted=bool(self._first and self._now and another_run(self._first, self._now)),
            marker_seen=watch.marker_seen if watch else None,
            fatal_line=watch.fatal_line if watch else None,
            last_words=watch.last_words if watch and (watch.fatal_line or not self._runs()) else "",
            owner=asked.owner,
            owner_detail=asked.owner_detail,
            http=asked.http,
        )

    def _runs(self) -> bool:
        return self._now is not None and self._now.running and not self._gone

    def _judge_owner(self, seen: PortOwner) -> Asked | None:
        """Settle whose port it is; return what to report instead of asking over HTTP, None when it may be asked.

        A stranger is believed only when seen twice: a process of ours that ended between the two readings looks like
        one once.
        """
        try:
            ours = self._engine.pids(self._id)
        except LaneError:
            ours = None  # cannot be read; an engine that stays silent is reported by `inspect`
        host_network = self._now is None or self._now.network_mode in HOST_NETWORK
        listeners = seen.pids if seen.listening else None
        owner = owner_of(listeners, ours, host_network=host_network, port_was_free=self._port_was_free)
        if owner is not Owner.FOREIGN:
            self._owner = owner
            return None
        strangers = (listeners or frozenset()) - (ours or frozenset())
        who = ", ".join(seen.names) or "a process"
        pids = ", ".join(str(pid) for pid in sorted(strangers))
        if strangers & self._strangers:
            return Asked(
                Owner.FOREIGN, f"port {self._served.port} is held by {who} (pid {pids}), not by this container"
            )
        self._strangers = strangers
        return Asked(None, f"port {self._served.port} answers; looking again whose it is")


def look(
    *,
    engine: ContainerEngine,
    prober: Prober,
    container_id: str,
    service: ReadyService,
    served: Served,
    port_was_free: bool = False,
) -> tuple[Sample, Verdict]:
    """Look at a service once, without waiting and without its log; return what was seen and the verdict.

    Takes as long as the spec's completion may take. Never raises for what it may find.
    """
    eyes = Eyes(engine, prober, container_id, service, served, port_was_free)
    eyes.inspect()
    asked = Asked()
    if judge_before_http(eyes.sample(), service.ready) is None:
        asked = eyes.ask(listens=True)
        if asked.owner is None and asked.http is None and asked.owner_detail:
            asked = eyes.ask(listens=True)  # a stranger is believed when seen twice
    sample = eyes.sample(asked=asked)
    return sample, judge(sample, service.ready)
