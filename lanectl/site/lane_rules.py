"""What must hold for a lane as a whole: who depends on whom, who answers HTTP, who restarts, who outlasts whom."""

from __future__ import annotations

from lanectl.core.lane import Lane, Service
from lanectl.core.site import Site
from lanectl.site.shape_reader import ShapeReader, Value
from lanectl.site.tree import nearest

# Options that say how many seconds a server itself takes to shut down: vLLM's own, and uvicorn's.
SHUTDOWN_OPTIONS = ("--shutdown-timeout", "--timeout-graceful-shutdown")
PARKED_MARK = ".parked."  # lanectl's own names for containers it put aside


def check_lane(reader: ShapeReader, lane: Lane, top: Value, site: Site) -> None:
    """Note everything that is wrong with the lane as a whole."""
    services = top.get("services")
    if services is None:
        return
    if not services.data and not reader.problems:
        reader.wrong(services, services.path, "a lane needs at least one service")
    for service in lane.services:
        _check_service(reader, lane, service, services.data[service.name])
    _check_names(reader, lane, services)
    if services.data:
        _check_http(reader, lane, services)
    if lane.map:
        _check_map(reader, lane, top)
    if lane.watchdog:
        _check_watchdog(reader, lane, top)
    _check_fallback(reader, lane, top, site)


def _check_service(reader: ShapeReader, lane: Lane, service: Service, value: Value) -> None:
    others = [other.name for other in lane.services if other.name != service.name]
    for item in value.items("depends_on"):
        if item.data == service.name:
            reader.wrong(item, item.path, "depends on itself")
        elif item.data not in others:
            reader.wrong(item, item.path, f"there is no service {item.data}", nearest(item.data, others))
    published = value.get("ports")
    if service.network_mode in ("host", "none") and published is not None and published.data:
        message = f"network_mode {service.network_mode} publishes no ports"
        reader.wrong(published, published.path, message, "the server listens on ${host} and ${port} itself")
    own = shutdown_seconds(service)
    if own is not None and service.stop_grace_s <= own:
        place = value.get("stop_grace_period") or value
        message = f"{service.stop_grace_s:g}s is not longer than the server's own shutdown time of {own:g}s"
        reader.wrong(place, f"{value.path}.stop_grace_period", message, "else every stop ends in a kill")


def shutdown_seconds(service: Service) -> float | None:
    """Given a service, return the seconds its command line says it takes to shut down, None when it does not say."""
    words = (*(service.entrypoint or ()), *(service.command or ()))
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option not in SHUTDOWN_OPTIONS:
            continue
        text = value if equals else words[index + 1] if index + 1 < len(words) else ""
        if len(text) <= 9 and text.replace(".", "", 1).isdecimal():
            return float(text)
    return None


def _check_names(reader: ShapeReader, lane: Lane, services: Value) -> None:
    owners: dict[str, str] = {}
    for service in lane.services:
        place = services.data[service.name].get("container_name")
        if place is None:
            continue
        if PARKED_MARK in service.container_name:
            reader.wrong(place, place.path, f"{PARKED_MARK} is in the names lanectl gives to containers it puts aside")
        if service.container_name in owners:
            reader.wrong(place, place.path, f"{service.container_name} is also the container of {owners[place.data]}")
        owners[service.container_name] = service.name


def _check_http(reader: ShapeReader, lane: Lane, services: Value) -> None:
    speaking = [service.name for service in lane.services if service.ready and service.ready.speaks_http]
    if len(speaking) != 1:
        who = f"{', '.join(speaking)} do" if speaking else "none does"
        hint = "ready: {models: true, completion: {}} belongs to the server, ready: {log: …} to the others"
        reader.wrong(services, services.path, f"exactly one service must answer HTTP; {who}", hint)


def _check_map(reader: ShapeReader, lane: Lane, top: Value) -> None:
    value = top.data["map"]
    assert lane.map is not None
    names = [service.name for service in lane.services]
    for item in value.items("services"):
        if item.data not in names:
            reader.wrong(item, item.path, f"there is no service {item.data}", nearest(item.data, names))
    if not lane.map.services:
        reader.wrong(value, "map.services", "names no service")
    for service in lane.services:
        if service.name in lane.map.services and any(mount.target == lane.map.mount for mount in service.mounts):
            place = value.get("mount") or value
            reader.wrong(place, "map.mount", f"{service.name} already mounts something at {lane.map.mount}")


def _check_watchdog(reader: ShapeReader, lane: Lane, top: Value) -> None:
    value = top.data["watchdog"]
    services = top.of("services")
    for service in lane.services:
        if service.restart.name != "no":
            place = services[service.name].get("restart") or services[service.name]
            message = f"{service.restart.name}: a lane with a watchdog is started by lanectl alone, in order and armed"
            reader.wrong(place, place.path, message, 'restart: "no"')
    if value.of("on_trip") == "fallback" and top.get("fallback") is None:
        reader.wrong(value.get("on_trip"), "watchdog.on_trip", "needs the lane to fall back to", "add fallback: LANE")
    spins = value.get("spins")
    if spins is not None and len(spins.data) == 3:
        _check_spins(reader, lane, spins)


def _check_spins(reader: ShapeReader, lane: Lane, spins: Value) -> None:
    name, variable, least = spins.of("service"), spins.of("variable"), spins.of("at_least")
    service = next((service for service in lane.services if service.name == name), None)
    if service is None:
        known = nearest(name, [service.name for service in lane.services])
        reader.wrong(spins.data["service"], "watchdog.spins.service", f"there is no service {name}", known)
        return
    value = dict(service.environment).get(variable)
    path = f"services.{name}.environment.{variable}"
    why = "else the engine gives up waiting, and answers wrongly, before the watchdog trips"
    if value is None:
        reader.wrong(spins, path, f"must be given, and be at least {least}", why)
    elif "${" in value:
        reader.wrong(spins, path, "must be written as a number in environment", why)
    elif not value.isdecimal() or not value.isascii() or len(value) > 18 or int(value) < least:
        reader.wrong(spins, path, f"must be a number of at least {least}", why)


def _check_fallback(reader: ShapeReader, lane: Lane, top: Value, site: Site) -> None:
    place = top.get("fallback")
    if place is None:
        return
    name = place.data.partition("@")[0]
    if name == lane.name:
        reader.wrong(place, place.path, "a lane cannot fall back to itself")
    elif name not in site.lanes:
        reader.wrong(place, place.path, f"there is no lane {name}", nearest(name, site.lanes))
