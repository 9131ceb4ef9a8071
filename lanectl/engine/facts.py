"""What the Docker Engine says about a container, as values. PURE.

Source: Docker Engine API 1.51, ContainerInspect and ContainerCreate. Podman's compatible API answers in the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lanectl.core.container import Container, CreateArgs, Image, Status
from lanectl.core.serving import Restart
from lanectl.errors import EngineError

NEVER = "0001-01-01T00:00:00Z"  # Go's zero time
SHORT_ID = 12  # a container's default host name, and its network alias, are this many characters of its id
GPU_KIND = "nvidia.com/gpu"

_STATUS = {status.value: status for status in Status} | {  # Podman's own words
    "configured": Status.CREATED,
    "initialized": Status.CREATED,
    "stopping": Status.RUNNING,
    "stopped": Status.EXITED,
}
_ENDED = (Status.EXITED, Status.DEAD, Status.RESTARTING)


def container(inspect: Mapping[str, Any]) -> Container:
    """Given an inspect answer, return the container. Raise `EngineError` for a status that is not known."""
    state, config, host = inspect["State"], inspect["Config"], inspect["HostConfig"]
    status = _status(str(state["Status"]))
    policy = host.get("RestartPolicy") or {}
    return Container(
        id=inspect["Id"],
        name=inspect["Name"].lstrip("/"),
        image_id=image_id(inspect["Image"]),
        image_ref=config.get("Image") or "",
        status=status,
        exit_code=state.get("ExitCode") if status in _ENDED else None,
        oom_killed=bool(state.get("OOMKilled")),
        error=state.get("Error") or "",
        created_at=_moment(inspect.get("Created")),
        started_at=_moment(state.get("StartedAt")),
        finished_at=_moment(state.get("FinishedAt")),
        restart_count=inspect.get("RestartCount") or 0,
        restart=Restart(policy.get("Name") or "no", policy.get("MaximumRetryCount") or 0),
        labels=dict(config.get("Labels") or {}),
        pid=state.get("Pid") or None,
        health=(state.get("Health") or {}).get("Status") or None,
        devices=_devices(config, host),
        network_mode=host.get("NetworkMode") or "",
    )


def image(inspect: Mapping[str, Any]) -> Image:
    """Given an image's inspect answer, return the image."""
    return Image(
        id=image_id(inspect["Id"]),
        digests=tuple(inspect.get("RepoDigests") or ()),
        tags=tuple(inspect.get("RepoTags") or ()),
    )


def image_id(text: str) -> str:
    """Return an image id with its algorithm: Podman leaves `sha256:` out."""
    return text if ":" in text else f"sha256:{text}"


def cdi_devices(info: Mapping[str, Any], api_version: tuple[int, int]) -> tuple[str, ...] | None:
    """Given `docker info`, return the CDI names the daemon knows; None where its API (before 1.50) has no such list.

    An empty list is left out of the answer. `CDISpecDirs` is not asked: it can be empty while CDI works.
    """
    if api_version < (1, 50):
        return None
    return tuple(device["ID"] for device in info.get("DiscoveredDevices") or () if device.get("Source") == "cdi")


def log_since(started_at: str) -> str:
    """Given StartedAt (RFC 3339, UTC, up to nanoseconds), return the logs call's `since`: "seconds.nanoseconds".

    Exact: a float would round the nanoseconds. "0" when it never started. Nothing of this run is missed: the engine
    takes StartedAt before it starts the process (seen on 28.5: the first line is some 80 ms later).
    """
    if not started_at:
        return "0"
    whole, _, fraction = started_at.removesuffix("Z").partition(".")
    seconds = datetime.fromisoformat(f"{whole}+00:00").timestamp()
    return f"{seconds:.0f}.{(fraction or '0').ljust(9, '0')}"


def recreate(inspect: Mapping[str, Any]) -> CreateArgs:
    """Given an inspect answer, return arguments that make this same container again, its image by id.

    Everything the create call accepts is kept. Left out is what the daemon filled in and would refuse or freeze: the
    default host name, addresses, the id among the network aliases. `AutoRemove` is never asked for: a parked
    container must stay. Anonymous volumes are named, so that the data comes along.
    """
    config, host = dict(inspect["Config"]), dict(inspect["HostConfig"])
    short_id = inspect["Id"][:SHORT_ID]
    config["Image"] = image_id(inspect["Image"])
    if config.get("Hostname") == short_id or _network_kind(host) == "container":
        config.pop("Hostname", None)
    # An empty entrypoint that overrides the image's reads back as null; null would mean the image's again.
    config["Entrypoint"] = config.get("Entrypoint") or [""]
    host["AutoRemove"] = False
    host["Binds"] = [*(host.get("Binds") or ()), *_anonymous_volumes(inspect)] or None
    endpoints = _endpoints(inspect, host, short_id)
    networking = {"NetworkingConfig": {"EndpointsConfig": endpoints}} if endpoints else {}
    return CreateArgs(inspect["Name"].lstrip("/"), {**config, "HostConfig": host, **networking})


def _status(text: str) -> Status:
    status = _STATUS.get(text)
    if status is None:
        raise EngineError(f"the engine reports a container status that is not known: {text!r}")
    return status


def _moment(text: str | None) -> str:
    return "" if not text or text == NEVER else text


def _devices(config: Mapping[str, Any], host: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the CDI names a container was given, and GPUs that came another way under the name CDI has for them.

    `--gpus '"device=GPU-…"'` (how production is often started by hand) is a device request without the CDI driver;
    the oldest way is the runtime `nvidia` with NVIDIA_VISIBLE_DEVICES. Both must be seen, or two lanes share a GPU.
    """
    names: list[str] = []
    for request in host.get("DeviceRequests") or ():
        ids = request.get("DeviceIDs") or ()
        if request.get("Driver") == "cdi":
            names += ids
        elif any("gpu" in group for group in request.get("Capabilities") or ()):
            names += [f"{GPU_KIND}={device}" for device in ids or ("all",)]
    if host.get("Runtime") == "nvidia" and not names:
        visible = _variable(config, "NVIDIA_VISIBLE_DEVICES")
        names += [f"{GPU_KIND}={device}" for device in visible.split(",") if device not in ("", "none", "void")]
    return tuple(dict.fromkeys(names))


def _variable(config: Mapping[str, Any], name: str) -> str:
    pairs = (entry.partition("=") for entry in config.get("Env") or ())
    return next((value for key, _, value in pairs if key == name), "")


def _network_kind(host: Mapping[str, Any]) -> str:
    return str(host.get("NetworkMode") or "default").partition(":")[0]


def _anonymous_volumes(inspect: Mapping[str, Any]) -> list[str]:
    host = inspect["HostConfig"]
    asked = {bind.split(":")[1] for bind in host.get("Binds") or () if ":" in bind}
    asked |= {mount.get("Target") for mount in host.get("Mounts") or ()}
    return [
        f"{mount['Name']}:{mount['Destination']}" + ("" if mount.get("RW", True) else ":ro")
        for mount in inspect.get("Mounts") or ()
        if mount.get("Type") == "volume" and mount["Destination"] not in asked
    ]


def _endpoints(inspect: Mapping[str, Any], host: Mapping[str, Any], short_id: str) -> dict[str, Any]:
    """Return what was asked of user-defined networks; the built-in ones accept no settings."""
    if _network_kind(host) in ("host", "none", "container"):
        return {}
    asked = {}
    for name, network in (inspect.get("NetworkSettings", {}).get("Networks") or {}).items():
        if name in ("bridge", "default"):
            continue
        kept = {key: network[key] for key in ("IPAMConfig", "Links", "DriverOpts", "GwPriority") if network.get(key)}
        aliases = [alias for alias in network.get("Aliases") or () if alias != short_id]
        asked[name] = kept | ({"Aliases": aliases} if aliases else {})
    return asked
