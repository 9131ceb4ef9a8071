"""The forward leg: one effect per verb of the plan. Order and phases come from core/plan.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lanectl.actions.bring_up import bring_up
from lanectl.actions.drain import drain
from lanectl.actions.gone import wait_free
from lanectl.actions.guard import Guard
from lanectl.actions.observe import find
from lanectl.actions.progress import Progress
from lanectl.actions.ready import ReadyReport, Served, wait_ready
from lanectl.actions.station import Station
from lanectl.actions.steps import forward
from lanectl.actions.watching import of_candidate, of_owed, trip_of, trip_soon
from lanectl.core.codec import to_json
from lanectl.core.container import Container, CreateArgs
from lanectl.core.journal import Kind
from lanectl.core.lane import Lane, Restart, Service
from lanectl.core.owed import Owed, OwedService, keep_tag, owe, parked_name, promise
from lanectl.core.plan import Step, Verb
from lanectl.core.recovery import SeenService, known_names
from lanectl.core.site import reachable
from lanectl.core.swap import Phase
from lanectl.errors import CandidateFailed, LaneError, NotThere
from lanectl.store.journal import Journal
from lanectl.store.watch import TripRecord

STABLE_LOOK_EVERY_S = 1.0
MIB = 2**20
DROP_CACHES = "/proc/sys/vm/drop_caches"


Effect = Callable[["Leg", Step], Mapping[str, Any] | None]


@dataclass
class Leg:
    """One forward leg under way.

    `wanted`: a candidate's lane, or the parked lane that a rollback wakes. `leaving`: what runs and makes room.
    `owed`: what comes back if this fails; the same as `leaving` unless that one tripped. `watched`: the candidate's
    server container, once its watchdog is armed.
    """

    station: Station
    journal: Journal
    wanted: Lane | Owed
    leaving: Owed | None
    owed: Owed | None
    check: Callable[[], None]
    progress: Progress
    guard: Guard
    creates: Mapping[str, CreateArgs] = field(default_factory=dict)
    profile: str | None = None
    verifies: bool = False
    watched: str | None = None
    ids: dict[str, str] = field(default_factory=dict)
    reports: dict[str, ReadyReport] = field(default_factory=dict)

    @property
    def lane(self) -> Lane:
        """The candidate's lane; a rollback has none."""
        if isinstance(self.wanted, Owed):
            raise AssertionError("a rollback boots no candidate")
        return self.wanted

    def service(self, name: str) -> Service:
        return next(service for service in self.lane.services if service.name == name)

    def leaving_service(self, name: str) -> OwedService:
        if self.leaving is None:
            raise AssertionError("nothing makes room")
        return next(service for service in self.leaving.services if service.name == name)

    def container(self, name: str) -> Container:
        """Look at a candidate. Raise `CandidateFailed` when it is gone."""
        container = self.station.engine.inspect(self.ids[name])
        if container is None:
            raise CandidateFailed(f"start:{name}", "EXITED", f"the candidate's {name} was removed behind our back")
        return container

    def checked(self) -> None:
        """The check of every wait: a person's interrupt, or a trip of the candidate."""
        self.check()
        if self.watched is not None:
            record = trip_of(self.station, self.watched)
            if record is not None:
                raise tripped("watchdog", record)


def tripped(step: str, record: TripRecord) -> CandidateFailed:
    """What a trip of the candidate means in a swap: it failed."""
    return CandidateFailed(step, "TRIPPED", f"the watchdog tripped: {record.rule}: {record.reason}")


def run_forward(leg: Leg, steps: tuple[Step, ...]) -> None:
    """Run the steps in order, recording each phase once its last step is done. Raise what a step raises."""
    leg.verifies = any(step.phase is Phase.VERIFIED for step in steps)
    for index, step in enumerate(steps):
        if index == 0 or steps[index - 1].phase is not step.phase:
            leg.progress.phase(step.phase, step.text)
        effect = _EFFECTS[step.verb]
        leg.progress.ticker(step.text)
        forward(leg.journal, step.name, lambda effect=effect, step=step: _do(leg, step, effect), leg.checked)  # type: ignore[misc]
        last_of_phase = index + 1 == len(steps) or steps[index + 1].phase is not step.phase
        if last_of_phase:
            _record_phase(leg, step.phase)


def _do(leg: Leg, step: Step, effect: Effect) -> Mapping[str, Any] | None:
    """Run a step's effect; a failure that a trip of the candidate explains is told as the trip."""
    try:
        return effect(leg, step)
    except LaneError as error:
        record = trip_soon(leg.station, leg.watched) if leg.watched is not None else None
        if record is not None:
            raise tripped(step.name, record) from error
        raise


def _record_phase(leg: Leg, phase: Phase) -> None:
    """ARMED and COMMITTED have records of their own that carry the restore target; VERIFIED may have no step."""
    if phase is Phase.ARMED:
        leg.journal.append(Kind.ARMED, data={"target": to_json(leg.owed), "guard": leg.guard.pid})
    elif phase is Phase.COMMITTED:
        former = leg.station.production().current
        leg.journal.append(Kind.COMMITTED, data={"target": to_json(_promoted(leg)), "former": to_json(former)})
    else:
        leg.journal.append(Kind.PHASE, phase)
    if phase is Phase.BOOTED and isinstance(leg.wanted, Owed):
        # A rollback's services were proven as they were started, and no gate applies to it.
        leg.journal.append(Kind.PHASE, Phase.READY)
        leg.journal.append(Kind.PHASE, Phase.VERIFIED)
    if phase is Phase.READY and not leg.verifies:
        # No gate and no stability window is asked for: what READY proved is all there is to verify.
        leg.journal.append(Kind.PHASE, Phase.VERIFIED)


def _create(leg: Leg, step: Step) -> dict[str, Any]:
    container_id = leg.station.engine.create(leg.station.reveal(leg.creates[step.service]))
    leg.ids[step.service] = container_id
    return {"id": container_id}


def _guard(leg: Leg, step: Step) -> dict[str, Any]:
    leg.guard.start()
    for service in leg.owed.services if leg.owed else ():
        leg.station.engine.keep_image(service.image_id, keep_tag(service.image_id))
    return {"pid": leg.guard.pid}


def _drain(leg: Leg, step: Step) -> dict[str, Any]:
    if leg.leaving is None or leg.leaving.drain is None:
        raise AssertionError("a drain needs a production and its policy")
    return drain(leg.station, leg.leaving, leg.leaving.drain, leg.checked, leg.progress)


def _park(leg: Leg, step: Step) -> None:
    owed = leg.leaving_service(step.service)
    if _is_there(leg, owed):
        leg.station.engine.set_restart(owed.container_id, Restart())
        leg.station.engine.rename(owed.container_id, parked_name(owed.container_name, leg.journal.state.swap))


def _is_there(leg: Leg, owed: OwedService) -> bool:
    """From dark, and in a rollback, production may be broken, or gone: what is not there need not be stopped."""
    may_be_gone = leg.journal.state.from_dark or isinstance(leg.wanted, Owed)
    return not may_be_gone or leg.station.engine.inspect(owed.container_id) is not None


def _stand_by(leg: Leg, step: Step) -> None:
    watchdog = of_owed(leg.station, leg.leaving) if leg.leaving else None
    if watchdog is not None:
        watchdog.stand_by()


def _unwatch(leg: Leg, step: Step) -> None:
    watchdog = of_owed(leg.station, leg.leaving) if leg.leaving else None
    if watchdog is not None:
        watchdog.end()


def _arm(leg: Leg, step: Step) -> None:
    watchdog = of_candidate(leg.station, leg.lane, leg.ids, leg.journal.state.swap, keep=leg.journal.state.keep)
    if watchdog is None:
        raise AssertionError("a lane without a watchdog has no step to arm it")
    watchdog.arm()
    leg.watched = leg.ids[leg.lane.server.name]


def _tighten(leg: Leg, step: Step) -> None:
    watchdog = of_candidate(leg.station, leg.lane, leg.ids, leg.journal.state.swap, keep=leg.journal.state.keep)
    if watchdog is None:
        raise AssertionError("a lane without a watchdog has no step to tighten it")
    watchdog.tighten()


def _stop(leg: Leg, step: Step) -> dict[str, Any]:
    owed = leg.leaving_service(step.service)
    if not _is_there(leg, owed):
        return {"how": "gone"}
    try:
        stopped = leg.station.engine.stop(owed.container_id, owed.stop_grace_s)
    except NotThere:
        return {"how": "gone"}  # started with `docker run --rm`: it vanishes as it ends, and is made again
    return {"how": stopped.how, "seconds": round(stopped.seconds, 3), "exit_code": stopped.exit_code}


def _free(leg: Leg, step: Step) -> dict[str, Any]:
    leaving, wanted = leg.leaving, leg.wanted
    memory = {one.uuid: one for one in (*(_memory(leaving) if leaving else ()), *_memory(wanted))}
    seen = wait_free(
        leg.station,
        port=(wanted.host, wanted.port) if leaving is None else (leaving.host, leaving.port),
        memory=tuple(memory.values()),
        shm=tuple(dict.fromkeys((*(leaving.shm if leaving else ()), *wanted.shm))),
        unknown_is_free=False,
        progress=leg.progress,
        check=leg.checked,
    )
    return seen | _host_memory(leg)


def _memory(of: Owed | Lane) -> tuple[Any, ...]:
    return tuple(service.memory for service in of.services if service.memory is not None)


def _host_memory(leg: Leg) -> dict[str, Any]:
    """Look at MemAvailable again: read while production held it, it said nothing about the candidate."""
    import psutil

    available = psutil.virtual_memory().available
    needed = leg.station.site.thresholds.mem_available
    if available < needed:
        raise LaneError(
            f"the host has {available // MIB} MiB available after production stopped, {needed // MIB} are asked for",
            "thresholds.mem_available in station.yaml; `ps --sort=-rss aux` shows who holds memory",
        )
    return {"mem_available": available}


def _page_cache(leg: Leg, step: Step) -> None:
    os.sync()
    try:
        with open(DROP_CACHES, "w", encoding="ascii") as knob:  # noqa: PTH123 - a kernel knob, not a file
            knob.write("3")
    except OSError as error:
        raise LaneError(f"{DROP_CACHES}: {error.strerror}", "before_boot.drop_page_cache needs root") from error


def _start(leg: Leg, step: Step) -> dict[str, Any]:
    leg.station.engine.start(leg.ids[step.service])
    seen = leg.container(step.service)
    wanted = tuple(device.qualified for device in leg.service(step.service).devices)
    if set(seen.devices) != set(wanted):
        raise CandidateFailed(
            step.name, "MISCONFIGURED", f"{step.service} runs with devices {seen.devices}, the spec asks for {wanted}"
        )
    return {"id": seen.id, "devices": list(seen.devices)}


def _ready(leg: Leg, step: Step) -> dict[str, Any]:
    service, lane = leg.service(step.service), leg.lane
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
        check=leg.checked,
        progress=leg.progress.ticker,
        deadline=None,
    )
    leg.reports[service.name] = report
    return {"seconds": round(report.seconds, 3), "owner": report.owner, "facts": dict(report.facts)}


def _wake(leg: Leg, step: Step) -> dict[str, Any]:
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


def _gate(leg: Leg, step: Step) -> dict[str, Any]:
    from lanectl.actions.gates import Boot, require_pass, run_gate

    boot = Boot(leg.station, leg.lane, leg.ids, leg.checked, leg.progress)
    return require_pass(step.name, run_gate(boot, step.service))


def _stable(leg: Leg, step: Step) -> dict[str, Any]:
    """The lane must stay up, unrestarted, for as long as the spec asks."""
    began = leg.station.clock.monotonic()
    first = {name: leg.container(name) for name in leg.ids}
    while leg.station.clock.monotonic() - began < leg.lane.stable_for_s:
        leg.checked()
        leg.station.clock.sleep(STABLE_LOOK_EVERY_S)
        _stayed_up(leg, step, first)
    return {"seconds": leg.lane.stable_for_s}


def _measure(leg: Leg, step: Step) -> dict[str, Any]:
    from lanectl.actions.measure import measure_lane

    if leg.profile is None:
        raise AssertionError("a measurement needs a profile")
    before = {name: leg.container(name) for name in leg.ids}
    measured = measure_lane(
        leg.station, leg.journal.state.swap, leg.lane, leg.profile, leg.reports, leg.checked, leg.progress
    )
    _stayed_up(leg, step, before)
    return measured


def _stayed_up(leg: Leg, step: Step, before: Mapping[str, Container]) -> None:
    """Raise `CandidateFailed` when a candidate's container ended, or was started again, since `before`."""
    for name, then in before.items():
        now = leg.container(name)
        if not now.running or now.started_at != then.started_at:
            raise CandidateFailed(step.name, "EXITED", f"{name} did not stay up: it is {now.status}")


def _commit(leg: Leg, step: Step) -> dict[str, Any]:
    """Keep what a later restore of the new production may need; the COMMITTED record itself follows."""
    if isinstance(leg.wanted, Owed):
        return {}
    names = {}
    for service in leg.lane.services:
        seen = leg.container(service.name)
        args = leg.creates[service.name]
        kept = CreateArgs(service.container_name, {**args.body, "Image": seen.image_id})
        names[service.name] = leg.station.keep_recreate(seen.id, kept)
        leg.station.engine.keep_image(seen.image_id, keep_tag(seen.image_id))
    return {"recreate": names}


def _promoted(leg: Leg) -> Owed:
    if isinstance(leg.wanted, Owed):
        woken = leg.journal.state.done["wake"]
        return replace(
            leg.wanted,
            services=tuple(replace(service, container_id=woken[service.name]["id"]) for service in leg.wanted.services),
        )
    kept = leg.journal.state.done["commit"]["recreate"]
    services = tuple(
        promise(
            leg.lane,
            service,
            container_id=leg.ids[service.name],
            image_id=leg.container(service.name).image_id,
            recreate=kept[service.name],
        )
        for service in leg.lane.services
    )
    return owe(leg.lane, services, host=leg.station.site.client_host(), adopted=False)


_EFFECTS: dict[Verb, Effect] = {
    Verb.CREATE: _create,
    Verb.GUARD: _guard,
    Verb.DRAIN: _drain,
    Verb.PARK: _park,
    Verb.STAND_BY: _stand_by,
    Verb.STOP: _stop,
    Verb.UNWATCH: _unwatch,
    Verb.FREE: _free,
    Verb.PAGE_CACHE: _page_cache,
    Verb.START: _start,
    Verb.READY: _ready,
    Verb.WAKE: _wake,
    Verb.ARM: _arm,
    Verb.TIGHTEN: _tighten,
    Verb.GATE: _gate,
    Verb.STABLE: _stable,
    Verb.MEASURE: _measure,
    Verb.COMMIT: _commit,
}
