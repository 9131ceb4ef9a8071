"""Which lanes the local engine can run: those that ask for nothing a plain process on this host does not have."""

from __future__ import annotations

from collections.abc import Iterator

from lanectl.core.lane import Lane, Service
from lanectl.errors import Problem

# What a container engine gives a container and nobody gives a process.
_NOT_HONOURED = ("ports", "ulimits", "cap_add", "security_opt", "shm_size", "tmpfs")
_LOG_DRIVERS = ("json-file", "local")


def local_problems(lane: Lane) -> list[Problem]:
    """Given a lane, return why the local engine cannot run it, by key; empty when it can."""
    return [problem for service in lane.services for problem in _service(lane, service)]


def _service(lane: Lane, service: Service) -> Iterator[Problem]:
    where, path = f"lanes/{lane.name}.yaml", f"services.{service.name}"

    def wrong(key: str, message: str, hint: str = "") -> Problem:
        return Problem(where, f"the local engine {message}", f"{path}.{key}", hint)

    if service.network_mode != "host":
        yield wrong("network_mode", "has only the host's network", "network_mode: host")
    if service.ipc != "host":
        yield wrong("ipc", "has only the host's IPC", "ipc: host")
    if not service.entrypoint:
        yield wrong("entrypoint", "has no image that names one", "entrypoint: [PROGRAM, …]")
    if service.restart.name != "no":
        yield wrong("restart", "restarts nothing by itself", 'restart: "no"')
    for mount in service.mounts:
        if mount.source != mount.target:
            yield wrong(
                "volumes", f"mounts nothing: {mount.source} cannot be seen at {mount.target}", "same path twice"
            )
    if lane.map and service.name in lane.map.services and lane.map.file != lane.map.mount:
        hint = f"mount: {lane.map.file}"
        yield Problem(where, f"the local engine mounts nothing: {service.name} sees the file itself", "map.mount", hint)
    if service.logging.driver not in _LOG_DRIVERS:
        yield wrong("logging", f"has no log driver {service.logging.driver}", f"one of {', '.join(_LOG_DRIVERS)}")
    for key in _NOT_HONOURED:
        if getattr(service, key) not in (None, ()):
            yield wrong(key, "cannot honour this", "leave it out, or use engine: {kind: docker}")
