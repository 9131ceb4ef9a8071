"""What a create body asks of the local engine, and everything in it that cannot be had there. PURE.

A lane runs on the local engine if its network and IPC are the host's, every mount is identity (source = target), and
its entrypoint is explicit. Anything else is refused by key, all at once.
Source of the keys: Docker Engine API 1.51, ContainerCreate.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lanectl.core.container import CreateArgs
from lanectl.core.lane import Logging
from lanectl.errors import Problem, Refused

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")  # Docker's own rule for container names
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # Docker's
DEFAULT_LANG = "C.UTF-8"
# In the environment of every process of a container, so that what a killed supervisor left behind is found.
MARKER = "LANECTL_CONTAINER"

USE_DOCKER = "leave it out, or run this lane on the docker engine"
_SIZE_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}  # go-units RAMInBytes, as json-file's max-size
_SIZE = re.compile(r"(\d+)\s*([bkmg]?)b?", re.IGNORECASE)
# Accepted with any value: outputs always go to the log, and orphans are always reaped, with an init or without.
_NO_MATTER = {"AttachStdin", "AttachStdout", "AttachStderr", "HostConfig.Init"}


@dataclass(frozen=True, slots=True)
class LocalSpec:
    """A create body as the local engine reads it. `stop_signal` is the signal's number."""

    argv: tuple[str, ...]
    env: tuple[str, ...] = ()
    cwd: str = "/"
    labels: Mapping[str, str] | None = None
    devices: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    stop_signal: int = signal.SIGTERM
    log_max_size: int = 0
    log_max_files: int = 0


def read_body(args: CreateArgs, users: Iterable[str] | None = None) -> LocalSpec:
    """Given create arguments, return what they ask for.

    `users` are the spellings of the current user, to whom `User` is compared; None: it is not. Raise `Refused` with
    every key that the local engine cannot honour.
    """
    reader = _Reader(args, None if users is None else frozenset(users))
    spec = reader.read()
    if reader.problems:
        raise Refused(reader.problems)
    return spec


def environment(
    spec: LocalSpec, *, container_id: str, directory: str, home: str, time_zone: str | None, edits: Iterable[str]
) -> dict[str, str]:
    """Return the environment of a container's main process: nothing of lanectl's own leaks in.

    First a small base (PATH: the environment's `bin` before Docker's default; HOME, LANG, TZ where the machine sets
    it), then the body's Env, then the CDI devices' edits, as CDI orders them, then the container's marker.
    """
    base = {"PATH": f"{directory}/bin:{DEFAULT_PATH}", "HOME": home, "LANG": DEFAULT_LANG}
    if time_zone:
        base["TZ"] = time_zone
    pairs = (item.partition("=") for item in (*spec.env, *edits))
    return base | {name: value for name, _, value in pairs} | {MARKER: container_id}


class _Reader:
    """Reads one body; every key is taken once, and what is left over is a problem."""

    def __init__(self, args: CreateArgs, users: frozenset[str] | None) -> None:
        self.name = args.name
        self.users = users
        self.body = dict(args.body)
        self.host = dict(self.body.pop("HostConfig", None) or {})
        self.problems: list[Problem] = []

    def read(self) -> LocalSpec:
        if not NAME.fullmatch(self.name):
            self._problem("name", f"{self.name!r} is no container name", "letters, digits, `_`, `.` and `-`")
        self.body.pop("Image", None)
        self._user(str(self.body.pop("User", None) or ""))
        self.body.pop("StopTimeout", None)  # the grace is the caller's, at the stop
        size, files = self._logging(self.host.pop("LogConfig", None) or {})
        spec = LocalSpec(
            argv=self._argv(),
            env=self._env(self.body.pop("Env", None) or ()),
            cwd=str(self.body.pop("WorkingDir", None) or "/"),
            labels=dict(self.body.pop("Labels", None) or {}),
            devices=self._devices(self.host.pop("DeviceRequests", None) or ()),
            sources=self._sources(),
            stop_signal=self._stop_signal(str(self.body.pop("StopSignal", None) or "SIGTERM")),
            log_max_size=size,
            log_max_files=files,
        )
        for key in ("NetworkMode", "IpcMode"):
            if self.host.pop(key, None) != "host":
                self._problem(f"HostConfig.{key}", "the local engine has only the host's", "set it to host")
        if ((self.host.pop("RestartPolicy", None) or {}).get("Name") or "no") != "no":
            self._problem("HostConfig.RestartPolicy", "the local engine restarts nothing", 'set restart: "no"')
        self._leftovers(self.body, "")
        self._leftovers(self.host, "HostConfig.")
        return spec

    def _problem(self, path: str, message: str, hint: str = USE_DOCKER) -> None:
        self.problems.append(Problem(f"container {self.name}", message, path, hint))

    def _leftovers(self, left: Mapping[str, Any], prefix: str) -> None:
        for key, value in left.items():
            if value and prefix + key not in _NO_MATTER:
                self._problem(prefix + key, "the local engine cannot honour it")

    def _argv(self) -> tuple[str, ...]:
        entrypoint = self.body.pop("Entrypoint", None) or ()
        command = self.body.pop("Cmd", None) or ()
        entrypoint = [entrypoint] if isinstance(entrypoint, str) else entrypoint
        command = [command] if isinstance(command, str) else command
        if not entrypoint or not entrypoint[0]:
            self._problem("Entrypoint", "the local engine has no image to take an entrypoint from", "name the program")
        argv = tuple(map(str, (*entrypoint, *command)))
        if any("\0" in word for word in argv):
            self._problem("Cmd", "a NUL character cannot be passed to a program", "")
        return argv

    def _env(self, items: Iterable[str]) -> tuple[str, ...]:
        env = tuple(map(str, items))
        for item in env:
            if item.find("=") < 1 or "\0" in item:
                self._problem("Env", f"{item.partition('=')[0]!r} has no value, or no name", "write NAME=value")
        return env

    def _user(self, user: str) -> None:
        if user and self.users is not None and user not in self.users:
            self._problem("User", f"the local engine runs lanes as the user who runs lanectl, not as {user}")

    def _stop_signal(self, name: str) -> int:
        try:
            number = int(name) if name.isdigit() else signal.Signals["SIG" + name.upper().removeprefix("SIG")]
            return signal.Signals(number)
        except (KeyError, ValueError):
            self._problem("StopSignal", f"{name} is no signal", "for example SIGTERM or SIGINT")
            return signal.SIGTERM

    def _devices(self, requests: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
        names: list[str] = []
        for request in requests:
            if request.get("Driver") == "cdi":
                names += request.get("DeviceIDs") or ()
            else:
                self._problem("HostConfig.DeviceRequests", "the local engine knows only CDI devices, by name")
        return tuple(names)

    def _sources(self) -> tuple[str, ...]:
        mounts = [_bind(text) for text in self.host.pop("Binds", None) or ()]
        for mount in self.host.pop("Mounts", None) or ():
            kind = mount.get("Type")
            if kind == "bind":
                mounts.append((str(mount.get("Source")), str(mount.get("Target"))))
            else:
                self._problem("HostConfig.Mounts", f"the local engine has no {kind} mounts ({mount.get('Target')})")
        for source, target in mounts:
            if source != target or not source.startswith("/"):
                message = f"{source} would have to appear at {target}; the local engine has only identity mounts"
                self._problem("HostConfig.Binds", message, "make source and target the same path")
        return tuple(source for source, _ in mounts)

    def _logging(self, config: Mapping[str, Any]) -> tuple[int, int]:
        if config.get("Type", Logging().driver) not in ("", "json-file", "local"):
            self._problem("HostConfig.LogConfig", f"the local engine has no log driver {config['Type']}")
        options = dict(Logging().options) | dict(config.get("Config") or {})
        size, files = _size(str(options.pop("max-size"))), str(options.pop("max-file"))
        if not size or not files.isdigit() or int(files) < 1:
            self._problem("HostConfig.LogConfig", "max-size and max-file bound the log", "for example 64m and 3")
        for key in options:
            self._problem("HostConfig.LogConfig", f"the local engine has no log option {key}")
        return size or 0, int(files) if files.isdigit() else 0


def _bind(text: str) -> tuple[str, str]:
    """Given `source:target[:options]`, return source and target. Read-only cannot be enforced here, and is accepted."""
    source, _, rest = text.partition(":")
    return source, rest.partition(":")[0]


def _size(text: str) -> int | None:
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _SIZE_UNITS[match[2].lower()] if match else None


def missing_paths(spec: LocalSpec, exists: Callable[[str], bool]) -> tuple[tuple[str, str], ...]:
    """Return the (key, path) of every mount and the working directory that are not there."""
    wanted = [("HostConfig.Mounts", source) for source in dict.fromkeys(spec.sources)]
    return tuple((key, path) for key, path in (*wanted, ("WorkingDir", spec.cwd)) if not exists(path))
