"""What a running container has that its spec does not say, and the other way round. Secrets are never shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lanectl.core.container import CreateArgs

# The parts of a create body an operator writes; the rest is filled in by the engine.
CONFIG_KEYS = ("Entrypoint", "Cmd", "WorkingDir", "User", "StopSignal", "StopTimeout")
HOST_KEYS = (
    *("NetworkMode", "IpcMode", "Binds", "Mounts", "DeviceRequests", "Ulimits", "CapAdd", "SecurityOpt"),
    *("ShmSize", "Tmpfs", "RestartPolicy", "PortBindings", "Init"),
)
# What the Docker Engine fills in where nothing was said: 64 MiB of shared memory, no SELinux label beside the host's
# IPC or PID namespace, its own modes. (Engine API 1.51, containers created without these keys.)
FILLED_IN: Mapping[str, tuple[Any, ...]] = {
    "ShmSize": (64 * 1024 * 1024,),
    "SecurityOpt": (["label=disable"],),
    "IpcMode": ("private", "shareable"),
    "NetworkMode": ("default", "bridge"),
}
EMPTY: tuple[Any, ...] = (None, "", [], {}, False, 0)


@dataclass(frozen=True, slots=True)
class Difference:
    """One key where spec and running container differ. Values of environment variables are left out."""

    service: str
    key: str
    spec: str
    running: str


def differences(service: str, spec: CreateArgs, running: CreateArgs) -> list[Difference]:
    """Given what the spec would create and what runs, return every difference an operator should know."""
    found = [
        Difference(service, key, _text(spec.body.get(key)), _text(running.body.get(key)))
        for key in CONFIG_KEYS
        if _plain(spec.body.get(key)) != _plain(running.body.get(key))
    ]
    ours, theirs = spec.body.get("HostConfig", {}), running.body.get("HostConfig", {})
    found += [
        Difference(service, f"HostConfig.{key}", _text(ours.get(key)), _text(theirs.get(key)))
        for key in HOST_KEYS
        if _plain(ours.get(key)) != _plain(theirs.get(key)) and not _filled_in(key, ours.get(key), theirs.get(key))
    ]
    return found + _environment(service, spec.body, running.body)


def _environment(service: str, spec: Mapping[str, Any], running: Mapping[str, Any]) -> list[Difference]:
    """Compare by name; a variable the image itself sets is in the running container only, so "only there" is a hint."""
    ours, theirs = _variables(spec), _variables(running)
    found = []
    for name in sorted({*ours, *theirs}):
        if name not in theirs:
            found.append(Difference(service, f"environment.{name}", "set", "not set"))
        elif name not in ours:
            found.append(Difference(service, f"environment.{name}", "not set (the image may set it)", "set"))
        elif ours[name] != theirs[name] and not ours[name].startswith("${"):
            found.append(Difference(service, f"environment.{name}", "another value", "set"))
    return found


def _filled_in(key: str, ours: Any, theirs: Any) -> bool:
    return ours in EMPTY and theirs in FILLED_IN.get(key, ())


def _variables(body: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, _, value in (str(entry).partition("=") for entry in body.get("Env") or ())}


def _plain(value: Any) -> Any:
    if value in EMPTY:
        return None
    if isinstance(value, Mapping):
        return {key: plain for key, item in value.items() if (plain := _plain(item)) is not None} or None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _text(value: Any) -> str:
    return "-" if value in EMPTY else str(value)
