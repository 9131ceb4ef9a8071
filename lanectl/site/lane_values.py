"""A lane, from the tree to the frozen value; the rules that need the whole lane are in lane_rules.py."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from lanectl.core.lane import Drain, Lane, MapRef, Missing, Service, Watchdog
from lanectl.core.site import Site
from lanectl.site.interpolate import Names
from lanectl.site.lane_rules import check_lane
from lanectl.site.lane_shape import LANE
from lanectl.site.manifest import read_manifest
from lanectl.site.service_values import ServiceBuilder
from lanectl.site.shape_reader import ShapeReader, Value
from lanectl.site.start_order import start_order
from lanectl.site.station import absolute
from lanectl.site.tree import Node

_EMPTY = Value({}, "", "")


def build_lane(
    site: Site, tree: Node, name: str, variant: str | None, host: str, port: int
) -> tuple[Lane, ShapeReader]:
    """Given a lane's tree with its variant laid on, return the lane and the reader that holds everything wrong with it.

    The lane is only good when the reader has no problems. Its sha256 is left to the caller.
    """
    reader = ShapeReader(Names(site, host, port))
    top = reader.read(LANE, tree, "") or _EMPTY
    builder = ServiceBuilder(reader, site)
    services = {key: builder.build(key, value) for key, value in top.of("services", {}).items()}
    lane = Lane(
        name=name,
        variant=variant,
        summary=top.of("summary", ""),
        served_model=top.of("served_model", ""),
        max_model_len=top.of("max_model_len"),
        host=host,
        port=port,
        services=_ordered(reader, top, services),
        map=_map(reader, top, site),
        shm=tuple(item.data for item in top.items("shm")),
        watchdog=_watchdog(top),
        drain=_drain(top),
        drop_page_cache=(top.get("before_boot") or _EMPTY).of("drop_page_cache", False),
        requires=tuple(item.data for item in top.items("requires")),
        gates=tuple(item.data for item in top.items("gates")),
        stable_for_s=top.of("stable_for", 0.0),
        measure_profile=(top.get("measure") or _EMPTY).of("profile"),
        fallback=top.of("fallback"),
    )
    check_lane(reader, lane, top, site)
    return replace(lane, missing=_unique(reader.missing)), reader


def _ordered(reader: ShapeReader, top: Value, services: dict[str, Service]) -> tuple[Service, ...]:
    order, cycle = start_order({name: service.depends_on for name, service in services.items()})
    if cycle:
        first = top.of("services")[cycle[0]]
        reader.wrong(first, f"{first.path}.depends_on", f"waits for itself: {' -> '.join((*cycle, cycle[0]))}")
    return tuple(services[name] for name in order)


def _map(reader: ShapeReader, top: Value, site: Site) -> MapRef | None:
    value = top.get("map")
    if value is None:
        return None
    file = value.get("file")
    if file is None:
        return None
    path = file.data if file.missing else absolute(site.root, file.data)
    entries, problems = read_manifest(Path(site.root))
    reader.problems += problems
    listed = next((entry for name, entry in entries.items() if absolute(site.root, f"maps/{name}") == path), None)
    if not file.missing and not os.path.isfile(path):  # noqa: PTH113 (never raises, whatever the name)
        source = f": {listed.source}" if listed and listed.source else ""
        reader.missing.append(Missing(file.data, file.where, f"put the map there{source}"))
    return MapRef(
        file=path,
        mount=value.of("mount", ""),
        services=tuple(item.data for item in value.items("services")),
        sha256=listed.sha256 if listed else None,
    )


def _watchdog(top: Value) -> Watchdog | None:
    value = top.get("watchdog")
    if value is None:
        return None
    spins = value.get("spins") or _EMPTY
    return Watchdog(
        counters=value.of("counters", ""),
        stall_s=value.of("stall", 0.0),
        mode=value.of("mode", ""),
        on_trip=value.of("on_trip", "dark"),
        spins_service=spins.of("service"),
        spins_variable=spins.of("variable"),
        spins_at_least=spins.of("at_least"),
    )


def _drain(top: Value) -> Drain | None:
    value = top.get("drain")
    return Drain(value.of("idle_for", 0.0), value.of("deadline", 0.0)) if value else None


def _unique(missing: list[Missing]) -> tuple[Missing, ...]:
    """Return each missing name once, at its first place."""
    first: dict[str, Missing] = {}
    for item in missing:
        first.setdefault(item.name, item)
    return tuple(first.values())
