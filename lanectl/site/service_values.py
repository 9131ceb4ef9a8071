"""One service of a lane, from what was read to the frozen value."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lanectl.core.lane import DEFAULT_STOP_GRACE_S, Device, Logging, Service, Ulimit
from lanectl.core.serving import (
    DEFAULT_READY_TIMEOUT_S,
    DEFAULT_RELEASE_ABOVE_IDLE_MIB,
    DEFAULT_RELEASE_STABLE_S,
    DEFAULT_RELEASE_WITHIN_S,
    Completion,
    Fact,
    GpuMemory,
    Ready,
    Restart,
)
from lanectl.core.site import Missing, Site
from lanectl.errors import ExitCode, LaneError
from lanectl.site.images import wrong_image
from lanectl.site.interpolate import lacking
from lanectl.site.mount_values import mounts, ports, tmpfs
from lanectl.site.quantities import MIB, to_mib
from lanectl.site.secret_literals import named_like_secret, secret_argument
from lanectl.site.secrets import env_file_keys
from lanectl.site.service_shape import VARIABLE
from lanectl.site.shape_reader import ShapeReader, Value
from lanectl.site.station import absolute
from lanectl.site.station_shape import UUID

_CDI = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*=[^\s=]+")
_UNBOUNDED_DRIVERS = ("json-file", "local")  # the drivers that grow without an end unless they are told not to


class ServiceBuilder:
    """Builds the services of one lane; problems and missing names go to the lane's reader."""

    def __init__(self, reader: ShapeReader, site: Site) -> None:
        self.reader = reader
        self.site = site

    def build(self, name: str, value: Value) -> Service:
        ready = value.get("ready")
        memory = value.get("memory")
        env_files = tuple(self.env_files(value))
        entrypoint, command = self.command(value, "entrypoint"), self.command(value, "command")
        return Service(
            name=name,
            container_name=value.of("container_name", ""),
            image=self.image(value),
            entrypoint=entrypoint,
            command=command,
            environment=self.environment(value, env_files),
            env_files=env_files,
            mounts=mounts(self.reader, value, self.site.root),
            devices=tuple(self.devices(value)),
            ipc=value.of("ipc"),
            network_mode=value.of("network_mode"),
            ports=ports(self.reader, value),
            ulimits=tuple(self.ulimits(value)),
            cap_add=tuple(item.data for item in value.items("cap_add")),
            security_opt=tuple(item.data for item in value.items("security_opt")),
            shm_size=value.of("shm_size"),
            tmpfs=tmpfs(self.reader, value),
            user=value.of("user"),
            working_dir=value.of("working_dir"),
            depends_on=tuple(item.data for item in value.items("depends_on")),
            restart=_restart(value.of("restart", "no")),
            logging=_logging(value.get("logging")),
            stop_grace_s=value.of("stop_grace_period", DEFAULT_STOP_GRACE_S),
            stop_signal=value.of("stop_signal"),
            init=value.of("init", False),
            ready=self.ready(ready) if ready else None,
            facts=tuple(self.facts(value)),
            memory=self.memory(memory) if memory else None,
        )

    def image(self, value: Value) -> str:
        image = value.get("image")
        if image is None:
            return ""
        wrong = None if image.missing else wrong_image(image.data, self.site.engine.kind)
        if wrong:
            self.reader.wrong(image, image.path, f"{image.data}: {wrong[0]}", wrong[1])
        return str(image.data)

    def command(self, value: Value, key: str) -> tuple[str, ...] | None:
        words = value.get(key)
        if words is None:
            return None
        texts = tuple(word.data for word in words.data)
        literal = secret_argument(texts)
        if literal is not None:
            hint = "give it in environment as ${secrets.NAME}; a command line can be read by everybody on the machine"
            self.reader.wrong(words.data[literal], words.data[literal].path, "a literal secret", hint)
        return texts

    def environment(self, value: Value, env_files: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """Return the variables in order: those of the env files first, as references, unless environment gives them."""
        own: dict[str, str] = {}
        for name, item, text in self.variables(value):
            if name in own:
                self.reader.wrong(item, item.path, f"{name} is given twice")
            if named_like_secret(name, text):
                self.reader.wrong(item, item.path, f"{name} holds a literal secret", "write ${secrets.NAME}")
            own[name] = text
        filed: dict[str, str] = {}
        for path in env_files:
            filed |= {key: f"${{env_file:{path}:{key}}}" for key in self.env_keys(path, value)}
        return tuple((filed | own).items())

    def variables(self, value: Value) -> Iterator[tuple[str, Value, str]]:
        found = value.get("environment")
        if found is None:
            return
        if isinstance(found.data, dict):
            for name, item in found.data.items():
                yield name, item, item.data
            return
        for item in found.data:
            name, equals, text = item.data.partition("=")
            if item.missing and not equals:
                continue  # a splice that station.yaml does not give yet
            if not equals or re.fullmatch(VARIABLE, name) is None:
                hint = "a variable is never taken from the shell lanectl runs in"
                self.reader.wrong(item, item.path, "must be NAME=VALUE", hint)
                continue
            yield name, item, text

    def env_files(self, value: Value) -> Iterator[str]:
        found = value.get("env_file")
        if found is None:
            return
        for item in (found,) if isinstance(found.data, str) else found.data:
            path = absolute(self.site.root, item.data)
            if item.missing:
                continue
            if re.search(r"[{}]", path):
                self.reader.wrong(item, item.path, "a path with { or } cannot be an env_file")
                continue
            yield path

    def env_keys(self, path: str, value: Value) -> tuple[str, ...]:
        found = value.get("env_file") or value
        try:
            return env_file_keys(path)
        except LaneError as error:
            if error.exit_code is ExitCode.REFUSED:
                self.reader.missing.append(Missing(path, found.where, f"{error.message}: {error.hint}"))
            else:
                self.reader.wrong(found, found.path, error.message, error.hint or "")
            return ()

    def devices(self, value: Value) -> Iterator[Device]:
        known = ", ".join(f"{role} {gpu.uuid}" for role, gpu in self.site.gpus.items())
        by_uuid = f"by UUID: {known}" if known else "give the GPUs in station.yaml under gpus: and write ${gpus.ROLE}"
        for item in value.items("devices"):
            if item.missing:
                if not item.data.startswith("*"):
                    yield Device(item.data)
                continue
            vendor, _, name = item.data.partition("=")
            if _CDI.fullmatch(item.data) is None:
                self.reader.wrong(item, item.path, f"{item.data}: not a CDI name such as nvidia.com/gpu=GPU-…", by_uuid)
            elif name == "all" or name.isdigit():
                message = f"{item.data}: an index or `all` can be another card after a reboot"
                self.reader.wrong(item, item.path, message, by_uuid)
            elif vendor.endswith("/gpu") and re.fullmatch(UUID, name) is None:
                self.reader.wrong(item, item.path, f"{item.data}: GPUs are named by UUID", by_uuid)
            yield Device(item.data)

    def ulimits(self, value: Value) -> Iterator[Ulimit]:
        for name, limit in value.of("ulimits", {}).items():
            if isinstance(limit.data, int):
                yield Ulimit(name, limit.data, limit.data)
                continue
            soft, hard = limit.of("soft", 0), limit.of("hard", 0)
            if hard != -1 and (soft == -1 or soft > hard):
                self.reader.wrong(limit, limit.path, "soft is above hard")
            yield Ulimit(name, soft, hard)

    def ready(self, value: Value) -> Ready:
        health = value.get("health")
        path, status = None, Ready().health_status
        if health is not None:
            keyed = isinstance(health.data, dict)
            path = health.of("path") if keyed else health.data
            status = health.of("status", status) if keyed else status
        completion = value.get("completion")
        ready = Ready(
            log=value.of("log"),
            fatal=tuple(item.data for item in value.items("fatal")),
            timeout_s=value.of("timeout", DEFAULT_READY_TIMEOUT_S),
            health=path,
            health_status=status,
            models=value.of("models", False),
            completion=_completion(completion) if completion else None,
            api_key=value.of("api_key"),
        )
        if ready.log is None and not ready.speaks_http:
            self.reader.wrong(value, value.path, "says nothing to wait for", "one of log, health, models, completion")
        return ready

    def facts(self, value: Value) -> Iterator[Fact]:
        for name, item in value.of("facts", {}).items():
            fact = Fact(name, item.of("log", ""), item.of("required", False), item.of("at_least"), item.of("at_most"))
            bounded = fact.at_least is not None or fact.at_most is not None
            if bounded and fact.log and re.compile(fact.log).groups == 0:
                self.reader.wrong(item, item.path, "a bound needs a group in log that holds the number", r"([\d,]+)")
            if fact.at_least is not None and fact.at_most is not None and fact.at_least > fact.at_most:
                self.reader.wrong(item, item.path, "at_least is above at_most")
            yield fact

    def memory(self, value: Value) -> GpuMemory:
        role = value.of("gpu", "")
        gpu = self.site.gpus.get(role)
        if gpu is None and role:
            self.reader.missing.append(lacking(f"gpus.{role}", value.where, self.site.gpus))
        return GpuMemory(
            role=role,
            uuid=gpu.uuid if gpu else f"${{gpus.{role}}}",
            above_idle_mib=to_mib(value.of("above_idle", DEFAULT_RELEASE_ABOVE_IDLE_MIB * MIB)),
            stable_s=value.of("stable", DEFAULT_RELEASE_STABLE_S),
            within_s=value.of("within", DEFAULT_RELEASE_WITHIN_S),
        )


def _completion(value: Value) -> Completion:
    default = Completion()
    return Completion(value.of("max_tokens", default.max_tokens), value.of("within", default.within_s))


def _restart(text: str) -> Restart:
    name, _, retries = text.partition(":")
    return Restart(name, int(retries or 0))


def _logging(value: Value | None) -> Logging:
    default = Logging()
    if value is None:
        return default
    driver = value.of("driver", default.driver)
    given = {name: item.data for name, item in value.of("options", {}).items()}
    bounds = dict(default.options) if driver in _UNBOUNDED_DRIVERS else {}
    return Logging(driver, tuple(sorted((bounds | given).items())))
