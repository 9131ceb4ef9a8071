"""What a swap will do, in order, before it does anything: `lanectl plan` prints these steps, the swap runs them.

Steps of the way back are listed for the reader; `core.recovery.next_move` decides them from what is observed then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lanectl.core.container import CreateArgs
from lanectl.core.lane import Lane
from lanectl.core.owed import Owed, candidate_name, parked_name
from lanectl.core.swap import Phase


class Verb(StrEnum):
    """What a step does. Each has one effect in actions/forward.py."""

    CREATE = "create"
    GUARD = "guard"
    DRAIN = "drain"
    PARK = "park"
    STAND_BY = "stand-by"
    STOP = "stop"
    UNWATCH = "unwatch"
    FREE = "free"
    PAGE_CACHE = "page-cache"
    START = "start"
    READY = "ready"
    WAKE = "wake"
    ARM = "arm"
    TIGHTEN = "tighten"
    GATE = "gate"
    STABLE = "stable"
    MEASURE = "measure"
    COMMIT = "commit"
    DISCARD = "discard"
    SETTLE = "settle"
    PROVE = "prove"


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `name` as the journal records it, the phase it belongs to, what it does in words, the engine's call."""

    phase: Phase
    verb: Verb
    name: str
    text: str
    call: str = ""
    service: str = ""


FREE_TEXT = "port, GPU memory and shared memory are free, host memory suffices"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator asked for. `gates`: asked for beside those the lane names."""

    keep: bool
    measure: str | None
    swap: str
    gates: tuple[str, ...] = ()


def forward_steps(lane: Lane, owed: Owed | None, creates: dict[str, CreateArgs], wish: Wish) -> tuple[Step, ...]:
    """Given a lane, what is owed and the create arguments by service, return the forward leg's steps in order."""
    steps = [_create(service.name, creates[service.name]) for service in lane.services]
    steps.append(_guard())
    steps += _quiesce(lane, owed, wish)
    steps += _boot(lane, wish)
    for gate in (*lane.gates, *wish.gates):
        steps.append(Step(Phase.VERIFIED, Verb.GATE, f"gate:{gate}", f"gate {gate} passes on this boot", "", gate))
    if lane.stable_for_s:
        text = f"stay ready for {lane.stable_for_s:g} s"
        steps.append(Step(Phase.VERIFIED, Verb.STABLE, "stable", text))
    if wish.measure:
        steps.append(Step(Phase.MEASURED, Verb.MEASURE, "measure", f"measure with profile {wish.measure}"))
    if wish.keep:
        steps.append(Step(Phase.COMMITTED, Verb.COMMIT, "commit", f"from here on {lane.label} is owed"))
    return tuple(steps)


def rollback_steps(owed: Owed | None, guest: Owed, swap: str) -> tuple[Step, ...]:
    """Given what is owed and the parked lane to go back to, return a rollback's forward leg: the ladder, no gates."""
    steps = [_guard()]
    if owed is not None:
        steps += _stop_owed(owed, swap)
    steps += _free(owed)
    text = f"start {guest.label} again, each service proven before the next"
    steps.append(Step(Phase.BOOTED, Verb.WAKE, "wake", text))
    return (*steps, Step(Phase.COMMITTED, Verb.COMMIT, "commit", f"from here on {guest.label} is owed"))


def return_steps(lane: Lane, owed: Owed | None, wish: Wish) -> tuple[Step, ...]:
    """Return the way back of a swap in which nothing went wrong, in order."""
    phase = Phase.RESTORED
    if wish.keep:
        settle = [
            Step(phase, Verb.SETTLE, f"settle:{service.name}", f"name it {service.container_name}")
            for service in lane.services
        ]
        return (*settle, Step(phase, Verb.PROVE, "prove", f"{lane.label} answers a real request"))
    steps = [
        Step(Phase.RELEASED, Verb.DISCARD, f"discard:{service.name}", f"stop, keep the log of, and remove {name}")
        for service in reversed(lane.services)
        for name in [candidate_name(service.container_name, wish.swap)]
    ]
    if owed is None:
        return tuple(steps)
    steps.append(Step(Phase.RELEASED, Verb.FREE, "released", "port, memory and shared memory are free"))
    for service in owed.services:
        steps.append(
            Step(
                phase,
                Verb.START,
                f"start:{service.name}",
                f"start {service.container_name}",
                _start(service.container_id),
            )
        )
    return (*steps, Step(phase, Verb.PROVE, "prove", f"{owed.label} answers a real request"))


def _create(service: str, args: CreateArgs) -> Step:
    call = f"POST /containers/create?name={args.name}"
    return Step(Phase.PREFLIGHTED, Verb.CREATE, f"create:{service}", f"create {args.name}, not started", call, service)


def _guard() -> Step:
    return Step(Phase.ARMED, Verb.GUARD, "guard", "start the guard: it restores what is owed if this process dies")


def _quiesce(lane: Lane, owed: Owed | None, wish: Wish) -> list[Step]:
    steps: list[Step] = []
    phase = Phase.QUIESCED
    if owed is not None:
        if owed.drain:
            text = f"wait until idle for {owed.drain.idle_for_s:g} s, at most {owed.drain.deadline_s:g} s"
            steps.append(Step(phase, Verb.DRAIN, "drain", text))
        steps += _stop_owed(owed, wish.swap)
    steps += _free(owed)
    if lane.drop_page_cache:
        steps.append(Step(phase, Verb.PAGE_CACHE, "page-cache", "drop the page cache"))
    return steps


def _free(leaving: Owed | None) -> list[Step]:
    """What makes room is gone: only then is its watchdog let go of."""
    steps = [Step(Phase.QUIESCED, Verb.FREE, "free", FREE_TEXT)]
    if leaving is not None and leaving.watchdog is not None:
        steps.append(Step(Phase.QUIESCED, Verb.UNWATCH, "unwatch", f"end the watchdog of {leaving.label}"))
    return steps


def _stop_owed(owed: Owed, swap: str) -> list[Step]:
    """Renaming and the restart policy cost no service: they come before the stop, outside the dark time."""
    steps = []
    if owed.watchdog is not None:
        text = f"tell the watchdog of {owed.label} to stand by: a timeout still trips it, its own end does not"
        steps.append(Step(Phase.QUIESCED, Verb.STAND_BY, "stand-by", text))
    for service in reversed(owed.services):
        parked = parked_name(service.container_name, swap)
        call = f"POST /containers/{service.container_id[:12]}/update, /rename?name={parked}"
        text = f"park {service.container_name}: restart policy no, named {parked}"
        steps.append(Step(Phase.QUIESCED, Verb.PARK, f"park:{service.name}", text, call, service.name))
    for service in reversed(owed.services):
        call = f"POST /containers/{service.container_id[:12]}/stop?t={service.stop_grace_s:g}"
        text = f"stop {service.container_name}, at most {service.stop_grace_s:g} s, then kill"
        steps.append(Step(Phase.QUIESCED, Verb.STOP, f"stop:{service.name}", text, call, service.name))
    return steps


def _boot(lane: Lane, wish: Wish) -> list[Step]:
    """A service that others depend on is ready before they start; the others are awaited once all are started."""
    needed = {name for service in lane.services for name in service.depends_on}
    boot: list[Step] = []
    ready: list[Step] = []
    for service in lane.services:
        name = candidate_name(service.container_name, wish.swap)
        if lane.watchdog is not None and service is lane.server:
            text = f"arm the watchdog: {lane.watchdog.counters}, boot mode"
            boot.append(Step(Phase.BOOTED, Verb.ARM, "arm", text))
        boot.append(
            Step(Phase.BOOTED, Verb.START, f"start:{service.name}", f"start {name}", _start(name), service.name)
        )
        timeout = f", at most {service.ready.timeout_s:g} s" if service.ready else ""
        await_it = f"{service.name} climbs the readiness ladder{timeout}"
        if service.name in needed:
            boot.append(Step(Phase.BOOTED, Verb.READY, f"ready:{service.name}", await_it, "", service.name))
        else:
            ready.append(Step(Phase.READY, Verb.READY, f"ready:{service.name}", await_it, "", service.name))
    if lane.watchdog is not None:
        text = f"tighten the watchdog: a stall of {lane.watchdog.stall_s:g} s kills the lane ({lane.watchdog.mode})"
        ready.append(Step(Phase.READY, Verb.TIGHTEN, "tighten", text))
    return boot + ready


def _start(ref: str) -> str:
    return f"POST /containers/{ref[:12] if len(ref) == 64 else ref}/start"
