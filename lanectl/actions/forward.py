"""The forward leg: one effect per verb of the plan. Order and phases come from core/plan.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lanectl.actions import boot, quiesce
from lanectl.actions.boot import stayed_up
from lanectl.actions.leg import Effect, Leg, tripped
from lanectl.actions.steps import failure_data, forward
from lanectl.actions.watching import trip_soon
from lanectl.core.codec import to_json
from lanectl.core.container import CreateArgs
from lanectl.core.journal import Kind
from lanectl.core.owed import Owed, keep_tag, owe, promise
from lanectl.core.plan import Step, Verb
from lanectl.core.swap import Phase
from lanectl.errors import LaneError, Unguarded

BEFORE_ANY_STOP = (Phase.OPENED, Phase.PREFLIGHTED, Phase.ARMED)


def run_forward(leg: Leg, steps: tuple[Step, ...]) -> None:
    """Run the steps in order, recording each phase once its last step is done. Raise what a step raises."""
    leg.verifies = any(step.phase is Phase.VERIFIED for step in steps)
    for index, step in enumerate(steps):
        if index == 0 or steps[index - 1].phase is not step.phase:
            leg.progress.phase(step.phase, step.text)
        effect = _EFFECTS[step.verb]
        leg.progress.ticker(step.text)
        _see_to_the_guard(leg)
        forward(leg.journal, step.name, lambda effect=effect, step=step: _do(leg, step, effect), leg.checked)  # type: ignore[misc]
        last_of_phase = index + 1 == len(steps) or steps[index + 1].phase is not step.phase
        if last_of_phase:
            _see_to_the_guard(leg)
            _record_phase(leg, step.phase)


def _see_to_the_guard(leg: Leg) -> None:
    """Its death stops whatever has not stopped production yet; after that, forward and back are equally unguarded."""
    state = leg.journal.state
    stopped = (
        state.phase not in BEFORE_ANY_STOP or state.stopping or any(name.startswith("stop:") for name in state.done)
    )
    if stopped:
        leg.guard.tell_if_lost(leg.journal, leg.progress)
        return
    try:
        leg.guard.demand()
    except Unguarded as error:
        leg.journal.append(Kind.FAILED, Verb.GUARD, failure_data(error))
        raise


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


def _measure(leg: Leg, step: Step) -> dict[str, Any]:
    from lanectl.actions.measure import measure_lane

    if leg.profile is None:
        raise AssertionError("a measurement needs a profile")
    before = {name: leg.container(name) for name in leg.ids}
    measured = measure_lane(
        leg.station, leg.journal.state.swap, leg.lane, leg.profile, leg.reports, leg.checked, leg.progress
    )
    stayed_up(leg, step, before)
    return measured


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
    Verb.CREATE: boot.create,
    Verb.GUARD: quiesce.guard,
    Verb.DRAIN: quiesce.drain,
    Verb.PARK: quiesce.park,
    Verb.STAND_BY: quiesce.stand_by,
    Verb.STOP: quiesce.stop,
    Verb.UNWATCH: quiesce.unwatch,
    Verb.FREE: quiesce.free,
    Verb.PAGE_CACHE: quiesce.page_cache,
    Verb.START: boot.start,
    Verb.READY: boot.ready,
    Verb.WAKE: boot.wake,
    Verb.ARM: boot.arm,
    Verb.TIGHTEN: boot.tighten,
    Verb.GATE: boot.gate,
    Verb.STABLE: boot.stable,
    Verb.MEASURE: _measure,
    Verb.COMMIT: _commit,
}
