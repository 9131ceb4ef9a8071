"""Start an owed lane's services in order and prove each: the same ladder as a boot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanectl.actions import engine_hints
from lanectl.actions.interrupts import Interrupts
from lanectl.actions.look import served
from lanectl.actions.progress import Progress
from lanectl.actions.ready import ReadyReport, wait_ready
from lanectl.actions.station import Station
from lanectl.actions.watching import of_owed, stand_by
from lanectl.core.container import Container, CreateArgs, Status
from lanectl.core.owed import Owed, OwedService
from lanectl.core.recovery import SeenService
from lanectl.core.serving import Restart
from lanectl.errors import EngineError


def bring_up(
    station: Station,
    owed: Owed,
    target: tuple[SeenService, ...],
    *,
    restart_first: bool,
    port_was_free: bool,
    progress: Progress,
    check: Callable[[], None] = Interrupts.ignore,
) -> dict[str, Any]:
    """Start each service that is down, in order, and climb its ladder; return each one's id and time to ready.

    `restart_first`: an earlier attempt failed, so what runs is stopped and started again. A container that is missing
    is made again from its kept create arguments. Raise `LaneError` or `CandidateFailed` from the ladder.
    """
    if restart_first:
        for seen in reversed(target):
            if seen.container is not None:
                stand_by(station, seen.container)
                station.engine.stop(seen.container.id, seen.owed.stop_grace_s)
    ids = {seen.owed.name: _ensure_there(station, seen, progress) for seen in target}
    watchdog = of_owed(station, owed, ids)
    result: dict[str, Any] = {}
    for seen in target:
        name = seen.owed.name
        if watchdog is not None and name == owed.server.name:
            watchdog.arm()  # its counters' file is there: the sidecar before it is ready. No traffic unless armed
        _ensure_started(station, seen, ids[name], progress)
        report = _prove(station, owed, seen.owed, ids[name], port_was_free, progress, check)
        result[name] = {"id": ids[name], "seconds": round(report.seconds, 3), "owner": report.owner}
    if watchdog is not None:
        watchdog.tighten()
    return result


def _ensure_there(station: Station, seen: SeenService, progress: Progress) -> str:
    if seen.container is not None:
        return seen.container.id
    _prove_gone(station, seen.owed)
    progress.note(f"{seen.owed.container_name} is gone: making it again from its kept create arguments")
    return _recreate(station, seen.owed)


def _prove_gone(station: Station, owed: OwedService) -> None:
    """Raise `EngineError` if the engine lists what it just did not know: made again beside itself, it would be two."""
    if any(container.id == owed.container_id for container in station.engine.containers()):
        raise EngineError(
            f"the engine said there is no {owed.container_name} ({owed.container_id[:12]}), and lists it",
            f"is the engine well? {engine_hints.check(station)}; then run `lanectl recover`",
        )


def _ensure_started(station: Station, seen: SeenService, container_id: str, progress: Progress) -> None:
    container = seen.container
    if container is not None:
        if container.status is Status.PAUSED:
            # A paused container cannot be started; only a kill moves it (the engine resumes it to die).
            station.engine.kill(container_id)
        if not container.running and container.restart.name != "no":
            station.engine.set_restart(container_id, Restart())
    progress.ticker(f"starting {seen.owed.container_name}")
    station.engine.start(container_id)


def _recreate(station: Station, owed: OwedService) -> str:
    kept = station.kept_recreate(owed.recreate)
    body = dict(kept.body)
    body["HostConfig"] = {**body.get("HostConfig", {}), "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}}
    return station.engine.create(station.reveal(CreateArgs(owed.container_name, body)))


def _prove(
    station: Station,
    owed: Owed,
    service: OwedService,
    container_id: str,
    port_was_free: bool,
    progress: Progress,
    check: Callable[[], None],
) -> ReadyReport:
    return wait_ready(
        engine=station.engine,
        prober=station.prober,
        clock=station.clock,
        container_id=container_id,
        service=service,
        served=served(station, owed, service),
        port_was_free=port_was_free,
        check=check,
        progress=progress.ticker,
        deadline=None,
    )


def give_back_restart(station: Station, owed: OwedService, container: Container) -> None:
    """Give a proven container its own restart policy back."""
    if container.restart != owed.restart:
        station.engine.set_restart(container.id, owed.restart)
