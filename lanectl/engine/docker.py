"""The Docker Engine behind the `ContainerEngine` port, and any engine with a compatible socket (Podman)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from lanectl.core.container import Container, CreateArgs, EngineInfo, Image, Stopped
from lanectl.core.serving import Restart
from lanectl.engine import docker_end, docker_probe, facts
from lanectl.engine.docker_api import DockerApi, Refusal
from lanectl.engine.docker_logs import DockerLog
from lanectl.engine.docker_pids import cgroup_pids
from lanectl.errors import DeviceUnknown, NameTaken, NotThere, Problem, Refused

# The engine takes any beginning of an id for the id, so a name such as "cafe" could mean somebody else's container.
_MAYBE_ID = re.compile(r"[0-9a-f]{1,63}")
_SHORT_ID = 12  # characters; shorter ones are not taken for ids


class DockerEngine:
    """A Docker Engine at one explicit endpoint; see `ContainerEngine` for what each method promises.

    It connects on the first call and refuses (`Refused`) an engine whose id is not `daemon_id` before anything else is
    asked of it; None pins nothing.
    """

    def __init__(self, endpoint: str, daemon_id: str | None) -> None:
        self._endpoint = endpoint
        self._daemon_id = daemon_id
        self._connected: DockerApi | None = None
        self._connecting = threading.Lock()

    def info(self) -> EngineInfo:
        api = self._api
        said = api.get("/info", what="ask the engine who it is")
        self._check_pin(said["ID"])
        return EngineInfo(
            kind="docker",
            id=said["ID"],
            version=said.get("ServerVersion") or "",
            endpoint=self._endpoint,
            cdi_devices=facts.cdi_devices(said, api.version),
        )

    def image(self, ref: str) -> Image | None:
        try:
            return facts.image(self._api.get(f"/images/{_image(ref)}/json", what=f"look up image {ref}"))
        except NotThere:
            return None

    def keep_image(self, image_id: str, tag: str) -> None:
        repository, _, version = tag.rpartition(":")
        self._api.act(
            "POST",
            f"/images/{_image(image_id)}/tag",
            what=f"tag image {image_id} as {tag}",
            params={"repo": repository, "tag": version},
        )

    def drop_image_tag(self, tag: str) -> None:
        """As the port says. A tag that is the only name of an image some container uses stays: the engine refuses."""
        try:
            self._api.act("DELETE", f"/images/{_image(tag)}", what=f"remove the image tag {tag}", params={"noprune": 1})
        except NotThere:
            return
        except Refusal as refusal:
            if refusal.status != HTTPStatus.CONFLICT:
                raise

    def create(self, args: CreateArgs) -> str:
        what = f"create container {args.name}"
        try:
            answer = self._api.act("POST", "/containers/create", what=what, params={"name": args.name}, body=args.body)
        except Refusal as refusal:
            if refusal.status == HTTPStatus.CONFLICT:
                raise NameTaken(refusal.message, f"docker --host {self._endpoint} inspect {args.name}") from refusal
            raise
        return str(self._api.said(answer, what)["Id"])

    def start(self, ref: str) -> None:
        try:
            self._api.act("POST", f"{self._path(ref)}/start", what=f"start container {ref}")
        except Refusal as refusal:
            if docker_probe.blames_cdi(refusal.words):
                raise DeviceUnknown(refusal.message, docker_probe.cdi_hint(self.info().cdi_devices)) from refusal
            raise

    def stop(self, ref: str, grace_s: float) -> Stopped:
        return docker_end.stop(self._api, self._path(ref), lambda: self.inspect(ref), grace_s)

    def kill(self, ref: str) -> None:
        docker_end.kill(self._api, self._path(ref), lambda: self.inspect(ref))

    def rename(self, ref: str, name: str) -> None:
        try:
            self._api.act("POST", f"{self._path(ref)}/rename", what=f"rename {ref} to {name}", params={"name": name})
        except Refusal as refusal:
            container = self.inspect(ref)
            if container is not None and container.name == name:
                return  # the engine refuses to give a container the name it has
            if refusal.status == HTTPStatus.CONFLICT:
                raise NameTaken(refusal.message, f"docker --host {self._endpoint} inspect {name}") from refusal
            raise

    def set_restart(self, ref: str, policy: Restart) -> None:
        asked = {"Name": policy.name, "MaximumRetryCount": policy.max_retries}
        self._api.act(
            "POST",
            f"{self._path(ref)}/update",
            what=f"set the restart policy of {ref}",
            body={"RestartPolicy": asked},
        )

    def remove(self, ref: str) -> None:
        try:
            path = self._path(ref)
        except NotThere:
            return
        docker_end.remove(self._api, path, lambda: self.inspect(ref))

    def inspect(self, ref: str) -> Container | None:
        said = self._inspect(ref)
        return None if said is None else facts.container(said)

    def containers(self, labels: Mapping[str, str] | None = None) -> tuple[Container, ...]:
        wanted = [f"{key}={value}" if value else key for key, value in (labels or {}).items()]
        params = {"all": 1, "filters": json.dumps({"label": wanted})}
        listed = self._api.get("/containers/json", what="list the containers", params=params)
        found = (self.inspect(entry["Id"]) for entry in listed)
        return tuple(container for container in found if container is not None)

    def recreate_args(self, ref: str) -> CreateArgs:
        return facts.recreate(self._inspect_or_raise(ref))

    def logs(self, ref: str, *, since_start: bool = True, follow: bool = True) -> DockerLog:
        said = self._inspect_or_raise(ref)
        params: dict[str, int | str] = {"stdout": 1, "stderr": 1, "follow": int(follow)}
        if since_start:
            params["since"] = facts.log_since(said["State"]["StartedAt"])
        stream = self._api.stream(f"/containers/{said['Id']}/logs", what=f"read the log of {ref}", params=params)
        return DockerLog(stream, tty=bool(said["Config"].get("Tty")))

    def pids(self, ref: str) -> frozenset[int] | None:
        container = facts.container(self._inspect_or_raise(ref))
        if not container.running:
            return frozenset()
        return None if container.pid is None else cgroup_pids(container.pid, container.id)

    def cdi_problem(self, image_id: str, devices: Sequence[str]) -> str | None:
        return docker_probe.cdi_problem(self._api, image_id, devices)

    @property
    def _api(self) -> DockerApi:
        with self._connecting:
            if self._connected is None:
                api = DockerApi(self._endpoint)
                if self._daemon_id is not None:
                    self._check_pin(api.get("/info", what="ask the engine who it is")["ID"])
                self._connected = api
            return self._connected

    def _check_pin(self, found: str) -> None:
        if self._daemon_id is not None and found != self._daemon_id:
            message = f"the engine at {self._endpoint} is {found}, pinned is {self._daemon_id}"
            hint = "another machine's engine, or one set up anew: correct engine.endpoint or engine.daemon_id"
            raise Refused([Problem("station.yaml", message, "engine.daemon_id", hint)])

    def _path(self, ref: str) -> str:
        """Return the API path of exactly this container. Raise `NotThere`."""
        if not ref:
            raise NotThere("a container without id or name")
        if _MAYBE_ID.fullmatch(ref):
            ref = self._inspect_or_raise(ref)["Id"]
        return f"/containers/{quote(ref, safe='')}"

    def _inspect(self, ref: str) -> Any:
        if not ref:
            return None
        try:
            said = self._api.get(f"/containers/{quote(ref, safe='')}/json", what=f"inspect container {ref}")
        except NotThere:
            return None
        is_id = said["Id"] == ref or (len(ref) >= _SHORT_ID and said["Id"].startswith(ref))
        return said if is_id or said["Name"].lstrip("/") == ref else None

    def _inspect_or_raise(self, ref: str) -> Any:
        said = self._inspect(ref)
        if said is None:
            raise NotThere(f"no container {ref} on {self._endpoint}")
        return said


def _image(ref: str) -> str:
    return quote(ref, safe="/:@")
