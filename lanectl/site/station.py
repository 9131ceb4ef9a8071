"""station.yaml -> Site."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from lanectl.core.site import LOOPBACK, EngineConfig, Gpu, SecretRef, Site, Thresholds
from lanectl.errors import Problem
from lanectl.site.images import wrong_image
from lanectl.site.quantities import to_mib
from lanectl.site.shape_reader import ShapeReader, Value
from lanectl.site.station_shape import STATION
from lanectl.site.tree import Node, nearest

DOCKER_ENDPOINT = "unix:///var/run/docker.sock"
_EMPTY = Value({}, "", "")


def build_site(root: Path, tree: Node, lanes: tuple[str, ...]) -> tuple[Site, list[Problem]]:
    """Given the tree of station.yaml and the lane names, return the site and everything wrong with it.

    The site is only good when there are no problems.
    """
    reader = ShapeReader(None)
    top = reader.read(STATION, tree, "") or _EMPTY
    base = os.path.realpath(root)
    ports = top.get("ports") or _EMPTY
    site = Site(
        root=base,
        id=hashlib.sha256(base.encode("utf-8", "surrogateescape")).hexdigest()[:12],
        name=top.of("station", ""),
        engine=_engine(reader, top, base),
        host=top.of("host", LOOPBACK),
        public_port=ports.of("public", 0),
        trial_port=ports.of("trial", 0),
        gpus=_gpus(reader, top),
        paths=_paths(reader, top, base),
        images=_images(reader, top),
        args={name: tuple(word.data for word in words.data) for name, words in top.of("args", {}).items()},
        secrets=_secrets(reader, top, base),
        thresholds=_thresholds(top.get("thresholds") or _EMPTY),
        production=top.of("production"),
        reboot_recovery=top.of("reboot_recovery", "required"),
        lanes=lanes,
    )
    if site.public_port == site.trial_port != 0:
        reader.wrong(ports, "ports", "public and trial must differ")
    _production(reader, top, lanes)
    return site, reader.problems


def _engine(reader: ShapeReader, top: Value, base: str) -> EngineConfig:
    engine = top.get("engine") or _EMPTY
    kind = engine.of("kind", "")
    if kind == "local":
        for key in ("endpoint", "daemon_id"):
            found = engine.get(key)
            if found:
                reader.wrong(found, found.path, "means nothing to the local engine", "leave it out")
    dirs = tuple(absolute(base, item.data) for item in engine.items("cdi_spec_dirs"))
    default = DOCKER_ENDPOINT if kind == "docker" else ""
    plain = EngineConfig(kind, engine.of("endpoint", default), engine.of("daemon_id"))
    return EngineConfig(
        kind, plain.endpoint, plain.daemon_id, dirs if engine.get("cdi_spec_dirs") else plain.cdi_spec_dirs
    )


def _gpus(reader: ShapeReader, top: Value) -> dict[str, Gpu]:
    gpus: dict[str, Gpu] = {}
    for role, value in top.of("gpus", {}).items():
        if isinstance(value.data, str):
            gpu = Gpu(role, value.data)
        else:
            gpu = Gpu(role, value.of("uuid", ""), to_mib(value.of("idle", 0)))
        twin = next((other for other in gpus.values() if other.uuid == gpu.uuid), None)
        if twin and gpu.uuid:
            reader.wrong(value, value.path, f"the same UUID as {twin.role}", "one role a card")
        gpus[role] = gpu
    return gpus


def _paths(reader: ShapeReader, top: Value, base: str) -> dict[str, str]:
    paths: dict[str, str] = {}
    for name, value in top.of("paths", {}).items():
        if ":" in value.data:
            reader.wrong(
                value, value.path, "a colon, which separates the parts of a volume", "rename or link the folder"
            )
        paths[name] = absolute(base, value.data)
    return paths


def _images(reader: ShapeReader, top: Value) -> dict[str, str]:
    images: dict[str, str] = {}
    kind = (top.get("engine") or _EMPTY).of("kind", "docker")
    for name, value in top.of("images", {}).items():
        wrong = wrong_image(value.data, kind)
        if wrong:
            reader.wrong(value, value.path, f"{value.data}: {wrong[0]}", wrong[1])
        images[name] = value.data
    return images


def _secrets(reader: ShapeReader, top: Value, base: str) -> dict[str, SecretRef]:
    secrets: dict[str, SecretRef] = {}
    for name, value in top.of("secrets", {}).items():
        env, file = value.of("env"), value.of("file")
        if (env is None) == (file is None):
            reader.wrong(value, value.path, "needs exactly one of env or file")
        secrets[name] = SecretRef(name, env, absolute(base, file) if file else None)
    return secrets


def _thresholds(value: Value) -> Thresholds:
    default = Thresholds()
    return Thresholds(
        mem_available=value.of("mem_available", default.mem_available),
        disk_free=value.of("disk_free", default.disk_free),
        swap_deadline_s=value.of("swap_deadline", default.swap_deadline_s),
        restore_attempts=value.of("restore_attempts", default.restore_attempts),
    )


def _production(reader: ShapeReader, top: Value, lanes: tuple[str, ...]) -> None:
    production = top.get("production")
    if production and production.data.partition("@")[0] not in lanes:
        reader.wrong(production, "production", f"there is no lane {production.data}", nearest(production.data, lanes))


def absolute(base: str, path: str) -> str:
    """Return the path as an absolute one; a relative one starts at the site's root."""
    return os.path.normpath(os.path.join(base, path))  # noqa: PTH118 (the text may be a path of another machine)
