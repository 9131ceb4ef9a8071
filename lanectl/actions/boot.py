"""The steps that bring a candidate, or a parked lane, up and keep it up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lanectl.actions.bring_up import bring_up
from lanectl.actions.leg import Leg
from lanectl.actions.observe import find
from lanectl.actions.ready import Served, wait_ready
from lanectl.actions.watching import of_candidate
from lanectl.core.container import Container
from lanectl.core.owed import Owed
from lanectl.core.plan import Step
from lanectl.core.recovery import SeenService, known_names
from lanectl.core.site import reachable
from lanectl.errors import CandidateFailed

STABLE_LOOK_EVERY_S = 1.0
PUBLIC_LOOK_EVERY_S = 0.25  # a look costs under a millisecond; an unproven lane answers clients no longer than this


def create(leg: Leg, step: Step) -> dict[str, Any]:
    container_id = leg.station.engine.create(leg.station.reveal(leg.creates[step.service]))
    leg.ids[step.service] = container_id
    return {"id": container_id}


def start(leg: Leg, step: Step) -> dict[str, Any]:
    leg.station.engine.start(leg.ids[step.service])
    seen = leg.container(step.service)
    wanted = tuple(device.qualified for device in leg.service(step.service).devices)
    if set(seen.devices) != set(wanted):
        raise CandidateFailed(
            step.name, "MISCONFIGURED", f"{step.service} runs with devices {seen.devices}, the spec asks for {wanted}"
        )
    return {"id": seen.id, "devices": list(seen.devices)}


class _PublicPort:
    """While a candidate is on trial nobody may answer on the public port: clients must not reach an unproven lane.

    A candidate that ignores the port it is told (a literal in its command, a default of its program) is stopped here.
    """

    def __init__(self, leg: Leg) -> None:
        site = leg.station.site
        self._leg = leg
        self._on_trial = leg.lane.port != site.public_port
        self._looked_at = float("-inf")

    def check(self) -> None:
        """The check of a wait. Raise `CandidateFailed` when somebody listens on the public port."""
        self._leg.checked()
        now = self._leg.station.clock.monotonic()
        if self._on_trial and now - self._looked_at >= PUBLIC_LOOK_EVERY_S:
            self._looked_at = now
            self.look()

    def look(self) -> None:
        site = self._leg.station.site
        if not self._on_trial:
            return
        seen = self._leg.station.prober.port(site.client_host(), site.public_port)
        if seen.listening:
            who = ", ".join(seen.names) or "somebody"
            raise CandidateFailed(
                "ready",
                "FOREIGN_PORT",
                f"{who} listens on the public port {site.public_port} while the candidate is on trial on "
                f"{self._leg.lane.port}: the lane must take its port from ${{port}}",
            )


def ready(leg: Leg, step: Step) -> dict[str, Any]:
    service, lane = leg.service(step.service), leg.lane
    public = _PublicPort(leg)
    report = wait_ready(
        engine=leg.station.engine,
        prober=leg.station.prober,
        clock=leg.station.clock,
        container_id=leg.ids[service.name],
        service=service,
        served=Served(
            host=reachable(lane.host),
            port=lane.port,
            model=lane.served_model,
            max_model_len=lane.max_model_len,
            api_key=leg.station.api_key(service.ready.api_key if service.ready else None),
        ),
        port_was_free=True,
        check=public.check,
        progress=leg.progress.ticker,
        deadline=None,
    )
    public.look()
    leg.reports[service.name] = report
    return {"seconds": round(report.seconds, 3), "owner": report.owner, "facts": dict(report.facts)}


def arm(leg: Leg, step: Step) -> None:
    watchdog = of_candidate(leg.station, leg.lane, leg.ids, leg.journal.state.swap, keep=leg.journal.state.keep)
    if watchdog is None:
        raise AssertionError("a lane without a watchdog has no step to arm it")
    watchdog.arm()
    leg.watched = leg.ids[leg.lane.server.name]


def tighten(leg: Leg, step: Step) -> None:
    watchdog = of_candidate(leg.station, leg.lane, leg.ids, leg.journal.state.swap, keep=leg.journal.state.keep)
    if watchdog is None:
        raise AssertionError("a lane without a watchdog has no step to tighten it")
    watchdog.tighten()


def wake(leg: Leg, step: Step) -> dict[str, Any]:
    """Start the parked lane again under its own names, each service proven before the next."""
    if not isinstance(leg.wanted, Owed):
        raise AssertionError("only a rollback wakes a parked lane")
    engine = leg.station.engine
    target = tuple(
        SeenService(service, find(leg.station, service, known_names(leg.journal.state, service)))
        for service in leg.wanted.services
    )
    for seen in target:
        if seen.container is not None:
            engine.rename(seen.container.id, seen.owed.container_name)
    return bring_up(
        leg.station, leg.wanted, target, restart_first=False, port_was_free=True, progress=leg.progress, check=leg.check
    )


def stable(leg: Leg, step: Step) -> dict[str, Any]:
    """The lane must stay up, unrestarted, for as long as the spec asks."""
    began = leg.station.clock.monotonic()
    first = {name: leg.container(name) for name in leg.ids}
    while leg.station.clock.monotonic() - began < leg.lane.stable_for_s:
        leg.checked()
        leg.station.clock.sleep(STABLE_LOOK_EVERY_S)
        stayed_up(leg, step, first)
    return {"seconds": leg.lane.stable_for_s}


def gate(leg: Leg, step: Step) -> dict[str, Any]:
    from lanectl.actions.gates import Boot, require_pass, run_gate

    boot = Boot(leg.station, leg.lane, leg.ids, leg.checked, leg.progress)
    return require_pass(step.name, run_gate(boot, step.service))


def stayed_up(leg: Leg, step: Step, before: Mapping[str, Container]) -> None:
    """Raise `CandidateFailed` when a candidate's container ended, or was started again, since `before`."""
    for name, then in before.items():
        now = leg.container(name)
        if not now.running or now.started_at != then.started_at:
            raise CandidateFailed(step.name, "EXITED", f"{name} did not stay up: it is {now.status}")
