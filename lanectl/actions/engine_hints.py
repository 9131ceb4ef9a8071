"""What a person can run against the engine at hand, in words for hints. The local engine has no command line."""

from __future__ import annotations

from lanectl.actions.station import Station
from lanectl.core.container import Container
from lanectl.site.station import DOCKER_ENDPOINT


def stop(station: Station, container: Container) -> str:
    """Return how to stop a container that runs."""
    if _local(station):
        return f"`kill {container.pid}`" if container.pid else "end its process"
    return f"`{_docker(station)} stop {container.name}`"


def give_up_name(station: Station, container: Container) -> str:
    """Return how to free the name that a container has."""
    if _local(station):
        return "give the lane's service another container_name"
    return f"`{_docker(station)} rename {container.name} {container.name}.old`, or remove it if nobody needs it"


def show_containers(station: Station) -> str:
    """Return what lists all containers by name, those that do not run too."""
    return f"`ls {station.state.local}/names`" if _local(station) else f"`{_docker(station)} ps -a`"


def check(station: Station) -> str:
    """Return what shows whether the engine is well."""
    return f"`ls {station.state.local}`" if _local(station) else f"`{_docker(station)} info`"


def _local(station: Station) -> bool:
    return station.site.engine.kind == "local"


def _docker(station: Station) -> str:
    """The endpoint of station.yaml is the one that lanectl uses; a person's Docker context may be another."""
    endpoint = station.site.engine.endpoint
    return "docker" if endpoint == DOCKER_ENDPOINT else f"docker --host {endpoint}"
