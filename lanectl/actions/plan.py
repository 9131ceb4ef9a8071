"""`lanectl plan`: everything a swap would do, before it does anything. Takes no lock, writes nothing."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from lanectl.actions.creates import create_all
from lanectl.actions.difference import Difference, differences
from lanectl.actions.history import Outage, expected_outage
from lanectl.actions.preflight import survey
from lanectl.actions.station import Station
from lanectl.actions.swap import SwapRequest
from lanectl.actions.unfinished import refuse_unfinished
from lanectl.core.container import CreateArgs
from lanectl.core.lane import Lane, Service
from lanectl.core.owed import Owed
from lanectl.core.plan import Step, Wish, forward_steps, return_steps
from lanectl.engine.create import create_args, docker_run
from lanectl.errors import ExitCode, LaneError, Problem
from lanectl.site.load import load_lane
from lanectl.store.lock import Lock

PLACEHOLDER = "SWAP"  # stands for the id that the swap will have


@dataclass(frozen=True, slots=True)
class Wait:
    """One duration that the lane or the site sets, seconds."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a swap would do. `runs`: by service, the command that is equivalent to what the engine is asked to create;
    secrets are references. `differences`: production as it runs against its spec; `no_difference` says why they are
    not known. `outage` None: no earlier swap of this lane."""

    lane: str
    summary: str
    spec_sha256: str
    owed: str | None
    stops: str | None
    forward: tuple[Step, ...]
    back: tuple[Step, ...]
    runs: dict[str, str]
    differences: tuple[Difference, ...]
    no_difference: str
    outage: Outage | None
    waits: tuple[Wait, ...]
    problems: tuple[Problem, ...]
    notices: tuple[Problem, ...]

    @property
    def exit_code(self) -> ExitCode:
        """REFUSED when preflight would refuse this swap now."""
        return ExitCode.REFUSED if self.problems else ExitCode.OK


def make_plan(station: Station, request: SwapRequest) -> Plan:
    """Given what would be asked for, return what would happen. Raise `SpecError` or `LaneError` for no good lane."""
    lane = load_lane(station.site, request.label, public=request.keep)
    owed = station.production().owed
    creates = create_all(station, lane, PLACEHOLDER)
    profile = (request.profile or lane.measure_profile or "general") if request.measure else None
    wish = Wish(request.keep, profile, PLACEHOLDER)
    seen = survey(station, lane, owed, keep=request.keep, from_dark=request.from_dark)
    first = _in_the_way(station)
    found, unknown = _against_spec(station, owed)
    return Plan(
        lane=lane.label,
        summary=lane.summary,
        spec_sha256=lane.sha256,
        owed=owed.label if owed else None,
        stops=owed.label if owed and not request.from_dark else None,
        forward=forward_steps(lane, owed, creates, wish),
        back=return_steps(lane, owed, wish),
        runs={name: _run(station, args) for name, args in creates.items()},
        differences=found,
        no_difference=unknown,
        outage=expected_outage(station.state, lane.label, keep=request.keep, measure=request.measure),
        waits=tuple(_waits(station, lane)),
        problems=(*first, *seen.problems),
        notices=seen.notices,
    )


def _in_the_way(station: Station) -> list[Problem]:
    """What would stop a swap before its preflight: a swap that is open, or somebody at work."""
    holder = Lock(station.state.lock).holder()
    if holder is not None:
        return [Problem(str(station.state.lock), f"held by {holder}", hint="`lanectl status` says what it does")]
    try:
        refuse_unfinished(station)
    except LaneError as error:
        return [Problem("state", error.message, hint=error.hint or "")]
    return []


def _run(station: Station, args: CreateArgs) -> str:
    if station.site.engine.kind != "local":
        return shlex.join(docker_run(args))
    words = ["env", *(args.body.get("Env") or ()), *(args.body.get("Entrypoint") or ()), *(args.body.get("Cmd") or ())]
    return shlex.join(words)


def _against_spec(station: Station, owed: Owed | None) -> tuple[tuple[Difference, ...], str]:
    """Return how production as it runs differs from its spec as it is now, or why that cannot be told."""
    if owed is None:
        return (), "nothing is owed"
    try:
        lane = load_lane(station.site, owed.label, public=True)
        services = {service.name: service for service in lane.services}
        found = [
            difference
            for one in owed.services
            if one.name in services
            for difference in _of_service(station, lane, services[one.name], one.container_id)
        ]
    except LaneError as error:
        return (), error.message
    return tuple(found), ""


def _of_service(station: Station, lane: Lane, service: Service, container_id: str) -> list[Difference]:
    running = station.engine.recreate_args(container_id)
    wanted = create_args(lane, service, name=service.container_name, labels={}, restart=service.restart)
    image = station.engine.image(service.image)
    runs = str(running.body.get("Image", ""))
    found = differences(service.name, wanted, running)
    if image is None or image.id != runs:
        found.insert(0, Difference(service.name, "Image", image.id if image else service.image, runs))
    return found


def _waits(station: Station, lane: Lane) -> list[Wait]:
    """Every duration that decides how long something may take, so that a slip of the pen is seen: 2m for 2s."""
    waits = [Wait("the whole swap", station.site.thresholds.swap_deadline_s)]
    if lane.drain:
        waits += [Wait("drain: idle_for", lane.drain.idle_for_s), Wait("drain: deadline", lane.drain.deadline_s)]
    for service in lane.services:
        waits += _service_waits(service)
    if lane.stable_for_s:
        waits.append(Wait("stable_for", lane.stable_for_s))
    if lane.watchdog:
        waits.append(Wait("watchdog: stall", lane.watchdog.stall_s))
    return waits


def _service_waits(service: Service) -> list[Wait]:
    name = service.name
    waits = []
    if service.ready:
        waits.append(Wait(f"{name}: ready.timeout", service.ready.timeout_s))
        if service.ready.completion:
            waits.append(Wait(f"{name}: ready.completion.within", service.ready.completion.within_s))
    waits.append(Wait(f"{name}: stop_grace_period", service.stop_grace_s))
    if service.memory:
        waits.append(Wait(f"{name}: memory.stable", service.memory.stable_s))
        waits.append(Wait(f"{name}: memory.within", service.memory.within_s))
    return waits
