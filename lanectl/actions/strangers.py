"""Preflight's look at containers that are not owed: one that runs, or has a name that is needed, may be in the way."""

from __future__ import annotations

from collections.abc import Iterator

from lanectl.actions import engine_hints
from lanectl.actions.case import Case
from lanectl.actions.history import FORGOTTEN, forgotten
from lanectl.core.container import LABEL_SITE, Container
from lanectl.core.owed import Desired
from lanectl.errors import Problem

# Nothing is recorded as production: whoever runs may be it, and to stop it would be an outage.
MAY_BE_PRODUCTION = "it may be production: stop nothing before you know; `lanectl adopt NAME...` records what is"


def lost_record(case: Case) -> Iterator[Problem]:
    """Production's record is gone. From dark that is no reason against a lane, unless production may still run."""
    lost = forgotten(case.station.state, case.station.production())
    if lost is not None and (not case.from_dark or any(_of_this_site(case, one) for one in case.containers)):
        yield Problem("production", lost, hint=FORGOTTEN)


def names(case: Case) -> Iterator[Problem]:
    """What is kept gets its own name after the commit, when it is too late to find that somebody else has it."""
    if not case.keep:
        return
    for service in case.lane.services:
        for container in case.containers:
            if container.name == service.container_name and container.id not in case.owned():
                free = engine_hints.give_up_name(case.station, container)
                yield Problem(
                    f"services.{service.name}.container_name",
                    f"{container.name} is the name of another container ({container.id[:12]}, {container.status})",
                    hint=_unless_production(case, container) or free,
                )


def parked_lanes(case: Case) -> Iterator[Problem]:
    """A parked lane that somebody started takes the port, or the memory, as soon as production lets go of it."""
    production = case.station.production()
    current = production.current
    for container in case.containers:
        if not _of_this_site(case, container) or container.id in case.owned():
            continue
        where = f"container {container.name}"
        if current is None:
            yield Problem(where, "it is of a lane of this site, and runs", hint=_unless_production(case, container))
        elif container.id in current.container_ids:
            why = "was stopped on purpose" if production.desired is Desired.STOPPED else "tripped"
            yield Problem(where, f"it is of {current.label}, which {why}, and runs", hint="`lanectl stop` ends it")
        else:
            stop = engine_hints.stop(case.station, container)
            yield Problem(
                where,
                "it is of a lane of this site that is not production, and runs",
                hint=f"stop it ({stop}): it would take production's place in the swap",
            )


def one_lane_a_gpu(case: Case) -> Iterator[Problem]:
    """A running stranger with one of the candidate's devices would share the GPU with it."""
    wanted = {device.qualified for service in case.lane.services for device in service.devices}
    for container in case.containers:
        if not container.active or container.id in case.owned():
            continue
        shared = sorted(name for name in container.devices if name in wanted or _may_be_any(name, wanted))
        if shared:
            unless = _unless_production(case, container)
            yield Problem(
                f"container {container.name}",
                f"it runs with {', '.join(shared)} {'and may be production' if unless else 'and is not production'}",
                hint=unless or f"stop it ({engine_hints.stop(case.station, container)}) or adopt it",
            )


def _of_this_site(case: Case, container: Container) -> bool:
    """True for one that runs and has this site's label, or was adopted and is parked now."""
    production = case.station.production()
    known = {one for owed in (production.current, production.previous) if owed for one in owed.container_ids}
    ours = container.labels.get(LABEL_SITE) == case.station.site.id or container.id in known
    return ours and container.active


def _unless_production(case: Case, container: Container) -> str:
    """Return what to do about a container that runs and may be production itself; "" where production is known."""
    if case.station.production().current is not None or not container.active:
        return ""
    return MAY_BE_PRODUCTION


def _may_be_any(name: str, wanted: set[str]) -> bool:
    """`=all`, or an index, of the same kind of device may be the very GPU: it cannot be told apart, so it counts."""
    kind, _, device = name.partition("=")
    return (device == "all" or device.isdigit()) and any(one.startswith(f"{kind}=") for one in wanted)
