"""Volumes, tmpfs and published ports: their short and long forms to frozen values."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from lanectl.core.lane import Mount, PortMap, Tmpfs
from lanectl.core.site import LOOPBACK
from lanectl.site.shape_reader import ShapeReader, Value
from lanectl.site.station import absolute

_MODES = {"ro": True, "rw": False}
_PORT = re.compile(
    r"(?:(?P<ip>[0-9.]+|\[[0-9A-Fa-f:]+\]):)?(?P<host>\d{1,5}):(?P<container>\d{1,5})(?:/(?P<proto>tcp|udp))?"
)
_MAX_PORT = 65535


def mounts(reader: ShapeReader, service: Value, root: str) -> tuple[Mount, ...]:
    """Return the service's mounts; every problem goes to the reader."""
    found: list[Mount] = []
    targets: set[str] = set()
    for item in service.items("volumes"):
        mount = _long_mount(item, root) if isinstance(item.data, dict) else _short_mount(reader, item, root)
        if mount is None:
            continue
        if mount.target in targets:
            reader.wrong(item, item.path, f"{mount.target} is mounted twice")
        targets.add(mount.target)
        found.append(mount)
    return tuple(found)


def _long_mount(item: Value, root: str) -> Mount | None:
    source, target = item.get("source"), item.of("target")
    if source is None or target is None:
        return None
    return Mount(source.data if source.missing else absolute(root, source.data), target, item.of("read_only", False))


def _short_mount(reader: ShapeReader, item: Value, root: str) -> Mount | None:
    parts = item.data.split(":")
    if item.missing and len(parts) == 1:
        return None  # a splice that station.yaml does not give yet
    if len(parts) not in (2, 3):
        reader.wrong(item, item.path, 'must be "SOURCE:TARGET" or "SOURCE:TARGET:ro"', "nothing is mounted unnamed")
        return None
    source, target, mode = parts[0], parts[1], parts[2] if len(parts) == 3 else "rw"
    if mode not in _MODES:
        reader.wrong(item, item.path, f"{mode}: the mode is ro or rw")
        return None
    if not item.missing and not source.startswith(("/", "./", "../")):
        reader.wrong(item, item.path, f"{source or 'nothing'}: a source is a path", "./NAME is a path in the site")
        return None
    if not target.startswith(("/", "${")):
        reader.wrong(item, item.path, f"{target or 'nothing'}: a target is an absolute path")
        return None
    resolved = source if "${" in source else absolute(root, source)
    return Mount(resolved, target, _MODES[mode])


def tmpfs(reader: ShapeReader, service: Value) -> tuple[Tmpfs, ...]:
    """Return the service's memory file systems; every problem goes to the reader."""
    value = service.get("tmpfs")
    if value is None:
        return ()
    return tuple(_tmpfs(reader, (value,) if isinstance(value.data, str) else value.data))


def _tmpfs(reader: ShapeReader, items: tuple[Value, ...]) -> Iterator[Tmpfs]:
    for item in items:
        target, _, options = item.data.partition(":")
        if not target.startswith("/") and not item.missing:
            reader.wrong(item, item.path, "a target is an absolute path")
            continue
        yield Tmpfs(target, options)


def ports(reader: ShapeReader, service: Value) -> tuple[PortMap, ...]:
    """Return the service's published ports; every problem goes to the reader."""
    return tuple(_ports(reader, service))


def _ports(reader: ShapeReader, service: Value) -> Iterator[PortMap]:
    for item in service.items("ports"):
        if item.missing:
            continue
        match = _PORT.fullmatch(item.data)
        if match is None:
            reader.wrong(item, item.path, 'must be "[ADDRESS:]HOST:CONTAINER[/udp]"', "both ports, no ranges")
            continue
        host, container = int(match["host"]), int(match["container"])
        address = (match["ip"] or LOOPBACK).strip("[]")
        if not (0 < host <= _MAX_PORT and 0 < container <= _MAX_PORT):
            reader.wrong(item, item.path, f"a port is 1 to {_MAX_PORT}")
            continue
        try:
            ipaddress.ip_address(address)
        except ValueError:
            reader.wrong(item, item.path, f"{address} is not an address")
            continue
        yield PortMap(container, host, address, match["proto"] or "tcp")
