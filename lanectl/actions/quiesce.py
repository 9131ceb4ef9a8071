"""The steps that make room: guard, drain, park, stop, and the proof that what production held is free."""

from __future__ import annotations

import os
from typing import Any

from lanectl.actions.drain import drain as let_finish
from lanectl.actions.gone import wait_free
from lanectl.actions.leg import Leg
from lanectl.actions.watching import of_owed
from lanectl.core.lane import Lane, Restart
from lanectl.core.owed import Owed, OwedService, keep_tag, parked_name
from lanectl.core.plan import Step
from lanectl.errors import LaneError, NotThere

MIB = 2**20
DROP_CACHES = "/proc/sys/vm/drop_caches"


def guard(leg: Leg, step: Step) -> dict[str, Any]:
    leg.guard.start()
    for service in leg.owed.services if leg.owed else ():
        leg.station.engine.keep_image(service.image_id, keep_tag(service.image_id))
    return {"pid": leg.guard.pid}


def drain(leg: Leg, step: Step) -> dict[str, Any]:
    if leg.leaving is None or leg.leaving.drain is None:
        raise AssertionError("a drain needs a production and its policy")
    return let_finish(leg.station, leg.leaving, leg.leaving.drain, leg.checked, leg.progress)


def park(leg: Leg, step: Step) -> None:
    owed = leg.leaving_service(step.service)
    if _is_there(leg, owed):
        leg.station.engine.set_restart(owed.container_id, Restart())
        leg.station.engine.rename(owed.container_id, parked_name(owed.container_name, leg.journal.state.swap))


def _is_there(leg: Leg, owed: OwedService) -> bool:
    """From dark, and in a rollback, production may be broken, or gone: what is not there need not be stopped."""
    may_be_gone = leg.journal.state.from_dark or isinstance(leg.wanted, Owed)
    return not may_be_gone or leg.station.engine.inspect(owed.container_id) is not None


def stand_by(leg: Leg, step: Step) -> None:
    watchdog = of_owed(leg.station, leg.leaving) if leg.leaving else None
    if watchdog is not None:
        watchdog.stand_by()


def unwatch(leg: Leg, step: Step) -> None:
    watchdog = of_owed(leg.station, leg.leaving) if leg.leaving else None
    if watchdog is not None:
        watchdog.end()


def stop(leg: Leg, step: Step) -> dict[str, Any]:
    owed = leg.leaving_service(step.service)
    if not _is_there(leg, owed):
        return {"how": "gone"}
    try:
        stopped = leg.station.engine.stop(owed.container_id, owed.stop_grace_s)
    except NotThere:
        return {"how": "gone"}  # started with `docker run --rm`: it vanishes as it ends, and is made again
    return {"how": stopped.how, "seconds": round(stopped.seconds, 3), "exit_code": stopped.exit_code}


def free(leg: Leg, step: Step) -> dict[str, Any]:
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


def page_cache(leg: Leg, step: Step) -> None:
    os.sync()
    try:
        with open(DROP_CACHES, "w", encoding="ascii") as knob:  # noqa: PTH123 - a kernel knob, not a file
            knob.write("3")
    except OSError as error:
        raise LaneError(f"{DROP_CACHES}: {error.strerror}", "before_boot.drop_page_cache needs root") from error
