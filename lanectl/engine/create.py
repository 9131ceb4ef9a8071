"""A service as what makes its container: the Engine API's create body, and the same as `docker run` and Compose.

Pure: nothing is read, nothing is revealed; secrets stay references.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lanectl.core.container import CreateArgs
from lanectl.core.lane import Lane, Logging, Mount, PortMap, Restart, Service, Ulimit

CDI_DRIVER = "cdi"  # the Engine API's name for the driver that takes qualified CDI names
NO_RESTART = Restart()
_ENV_FILE = re.compile(r"\$\{env_file:([^{}]+):[^{}:]+\}")
_SECRET = re.compile(r"\$\{secrets\.([^{}:]+)\}")


def create_args(
    lane: Lane, service: Service, *, name: str, labels: Mapping[str, str], restart: Restart = NO_RESTART
) -> CreateArgs:
    """Given a lane's service, return the body its container is created from (Engine API, /containers/create).

    The restart policy is the caller's: a candidate must not be started again by the daemon behind lanectl's back.
    CDI devices are one device request without count or options, which the daemon refuses beside CDI names.
    """
    body: dict[str, Any] = {
        "Image": service.image,
        "Env": [f"{key}={value}" for key, value in service.environment],
        "Labels": dict(labels),
        "StopTimeout": math.ceil(service.stop_grace_s),
        "HostConfig": _host_config(lane, service, restart),
    }
    optional: dict[str, Any] = {
        "Entrypoint": _listed(service.entrypoint),
        "Cmd": _listed(service.command),
        "User": service.user,
        "WorkingDir": service.working_dir,
        "StopSignal": service.stop_signal,
        "ExposedPorts": {_port(port): {} for port in service.ports} or None,
    }
    return CreateArgs(name, body | {key: value for key, value in optional.items() if value is not None})


def mounts_of(lane: Lane, service: Service) -> tuple[Mount, ...]:
    """Return the service's mounts and, where the lane's map names the service, the map, read-only."""
    if lane.map is None or service.name not in lane.map.services:
        return service.mounts
    return (*service.mounts, Mount(lane.map.file, lane.map.mount, read_only=True))


def docker_run(args: CreateArgs) -> list[str]:
    """Given create arguments, return the words of the `docker run` that does the same. References stay references."""
    body, host = args.body, args.body["HostConfig"]
    entrypoint = list(body.get("Entrypoint") or ())
    words = ["docker", "run", "--detach", "--pull", "never", "--name", args.name]
    words += _run_options(body, host)
    if entrypoint:
        words += ["--entrypoint", entrypoint[0]]
    return [*words, str(body["Image"]), *entrypoint[1:], *(body.get("Cmd") or ())]


def compose(lane: Lane) -> dict[str, Any]:
    """Given a lane, return a Compose file's content. A dollar sign is written $$, as Compose wants it.

    A variable that is a secret has no value: Compose takes it from the shell it runs in.
    """
    services = {service.name: _compose_service(lane, service) for service in lane.services}
    name = re.sub(r"[^a-z0-9_-]", "-", lane.label.lower())
    return {"name": name, "services": services}


def _host_config(lane: Lane, service: Service, restart: Restart) -> dict[str, Any]:
    host: dict[str, Any] = {
        "RestartPolicy": {"Name": restart.name, "MaximumRetryCount": restart.max_retries},
        "LogConfig": {"Type": service.logging.driver, "Config": dict(service.logging.options)},
        "AutoRemove": False,
    }
    optional: dict[str, Any] = {
        "NetworkMode": service.network_mode,
        "IpcMode": service.ipc,
        "Mounts": [_mount(mount) for mount in mounts_of(lane, service)],
        "DeviceRequests": _devices([device.qualified for device in service.devices]),
        "Ulimits": [{"Name": limit.name, "Soft": limit.soft, "Hard": limit.hard} for limit in service.ulimits],
        "CapAdd": list(service.cap_add),
        "SecurityOpt": list(service.security_opt),
        "ShmSize": service.shm_size,
        "Tmpfs": {tmpfs.target: tmpfs.options for tmpfs in service.tmpfs},
        "Init": service.init or None,
        "PortBindings": _bindings(service.ports),
    }
    return host | {key: value for key, value in optional.items() if value not in (None, [], {})}


def _mount(mount: Mount) -> dict[str, Any]:
    """A mount, not a bind: the daemon refuses a missing source instead of making an empty directory of it."""
    return {"Type": "bind", "Source": mount.source, "Target": mount.target, "ReadOnly": mount.read_only}


def _devices(names: list[str]) -> list[dict[str, Any]]:
    return [{"Driver": CDI_DRIVER, "DeviceIDs": names}] if names else []


def _bindings(ports: Sequence[PortMap]) -> dict[str, list[dict[str, str]]]:
    bindings: dict[str, list[dict[str, str]]] = {}
    for port in ports:
        bindings.setdefault(_port(port), []).append({"HostIp": port.host_ip, "HostPort": str(port.host)})
    return bindings


def _port(port: PortMap) -> str:
    return f"{port.container}/{port.protocol}"


def _listed(words: tuple[str, ...] | None) -> list[str] | None:
    return None if words is None else list(words)


def _run_options(body: Mapping[str, Any], host: Mapping[str, Any]) -> Iterator[str]:
    for option, value in _run_pairs(body, host):
        yield option
        if value is not None:
            yield value


def _run_pairs(body: Mapping[str, Any], host: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield the options of `docker run` in the order a person reads them: where, with what, how it lives."""
    yield from (("--network", host[key]) for key in ("NetworkMode",) if key in host)
    yield from (("--ipc", host[key]) for key in ("IpcMode",) if key in host)
    for bindings in (host.get("PortBindings") or {}).items():
        yield from (("--publish", _published(bindings[0], to)) for to in bindings[1])
    for request in host.get("DeviceRequests") or ():
        yield from (("--device", name) for name in request["DeviceIDs"])
    yield from (("--mount", _mount_word(mount)) for mount in host.get("Mounts") or ())
    yield from (("--tmpfs", f"{to}:{how}" if how else to) for to, how in (host.get("Tmpfs") or {}).items())
    yield from (("--ulimit", f"{limit['Name']}={limit['Soft']}:{limit['Hard']}") for limit in host.get("Ulimits") or ())
    yield from (("--cap-add", capability) for capability in host.get("CapAdd") or ())
    yield from (("--security-opt", option) for option in host.get("SecurityOpt") or ())
    if "ShmSize" in host:
        yield "--shm-size", str(host["ShmSize"])
    yield from _run_environment(body.get("Env") or ())
    yield from (("--label", f"{key}={value}") for key, value in (body.get("Labels") or {}).items())
    for key, option in (("User", "--user"), ("WorkingDir", "--workdir"), ("StopSignal", "--stop-signal")):
        if body.get(key):
            yield option, body[key]
    yield "--stop-timeout", str(body["StopTimeout"])
    if host.get("Init"):
        yield "--init", None
    policy = host["RestartPolicy"]
    retries = f":{policy['MaximumRetryCount']}" if policy["MaximumRetryCount"] else ""
    yield "--restart", policy["Name"] + retries
    yield "--log-driver", host["LogConfig"]["Type"]
    yield from (("--log-opt", f"{key}={value}") for key, value in host["LogConfig"]["Config"].items())


def _run_environment(entries: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Env files as files, once each and before what overrides them; everything else as it is."""
    files = dict.fromkeys(match.group(1) for entry in entries if (match := _ENV_FILE.fullmatch(_value(entry))))
    yield from (("--env-file", path) for path in files)
    yield from (("--env", entry) for entry in entries if _ENV_FILE.fullmatch(_value(entry)) is None)


def _value(entry: str) -> str:
    return entry.partition("=")[2]


def _published(port: str, binding: Mapping[str, str]) -> str:
    address = f"[{binding['HostIp']}]" if ":" in binding["HostIp"] else binding["HostIp"]
    return f"{address}:{binding['HostPort']}:{port}"


def _mount_word(mount: Mapping[str, Any]) -> str:
    """One --mount is one line of CSV: a field with a comma is quoted."""
    fields = [f"type={mount['Type']}", f"source={mount['Source']}", f"target={mount['Target']}"]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([*fields, "readonly"] if mount["ReadOnly"] else fields)
    return line.getvalue()


def _compose_service(lane: Lane, service: Service) -> dict[str, Any]:
    found: dict[str, Any] = {
        "container_name": service.container_name,
        "image": service.image,
        "pull_policy": "never",
        "entrypoint": _listed(service.entrypoint),
        "command": _listed(service.command),
        "env_file": list(service.env_files),
        "volumes": [_compose_mount(mount) for mount in mounts_of(lane, service)],
        "devices": [device.qualified for device in service.devices],
        "ipc": service.ipc,
        "network_mode": service.network_mode,
        "ports": [
            _published(_port(port), {"HostIp": port.host_ip, "HostPort": str(port.host)}) for port in service.ports
        ],
        "ulimits": {limit.name: _compose_limit(limit) for limit in service.ulimits},
        "cap_add": list(service.cap_add),
        "security_opt": list(service.security_opt),
        "shm_size": service.shm_size,
        "tmpfs": [f"{tmpfs.target}:{tmpfs.options}" if tmpfs.options else tmpfs.target for tmpfs in service.tmpfs],
        "user": service.user,
        "working_dir": service.working_dir,
        "depends_on": list(service.depends_on),
        "restart": service.restart.name + (f":{service.restart.max_retries}" if service.restart.max_retries else ""),
        "logging": _compose_logging(service.logging),
        "stop_grace_period": f"{service.stop_grace_s:g}s",
        "stop_signal": service.stop_signal,
        "init": service.init or None,
    }
    wanted: dict[str, Any] = _dollars({key: value for key, value in found.items() if value not in (None, [], {})})
    environment = _compose_environment(service)
    return wanted | ({"environment": environment} if environment else {})


def _compose_environment(service: Service) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for key, value in service.environment:
        if _ENV_FILE.fullmatch(value):
            continue  # env_file: gives it
        if _SECRET.fullmatch(value):
            found[key] = None
        else:
            # A secret inside other text becomes a variable of the shell Compose runs in, named like the secret.
            found[key] = _SECRET.sub(r"${\1}", value.replace("$", "$$").replace("$${secrets.", "${secrets."))
    return found


def _compose_mount(mount: Mount) -> dict[str, Any]:
    return {"type": "bind", "source": mount.source, "target": mount.target, "read_only": mount.read_only}


def _compose_limit(limit: Ulimit) -> int | dict[str, int]:
    return limit.soft if limit.soft == limit.hard else {"soft": limit.soft, "hard": limit.hard}


def _compose_logging(logging: Logging) -> dict[str, Any]:
    return {"driver": logging.driver, "options": dict(logging.options)}


def _dollars(value: Any) -> Any:
    """Return the value with every dollar sign doubled, in keys of nothing and texts of everything."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {key: _dollars(item) for key, item in value.items()}
    return [_dollars(item) for item in value] if isinstance(value, list) else value
