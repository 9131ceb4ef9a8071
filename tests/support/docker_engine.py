"""The one container engine that tests and benches use, found or started: `with docker_engine() as engine:`.

It is the one that answers: LANECTL_TEST_DOCKER_HOST, else DOCKER_HOST, else the active Docker context (unix sockets of
this machine only), else a private one where it can be started (Debian, root). A named endpoint that does not answer is
an error, never a reason to take another engine. Needs the Docker SDK, nothing of pytest.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.engine_api import call, ping
from tests.support.engine_cdi import NAMES
from tests.support.engine_images import ensure_images, remove_images
from tests.support.engine_lock import SharedUse
from tests.support.engine_packages import EngineUnavailable, cache_folder, why_not_here
from tests.support.private_engine import docker_command, kept, main_daemon

NAMED_BY = ("LANECTL_TEST_DOCKER_HOST", "DOCKER_HOST")


@dataclass(frozen=True)
class DockerEngine:
    """The engine in use: where it is, why this one, and what is ready on it."""

    url: str
    source: str  # the variable that named it, "Docker context NAME", or "private"
    daemon_id: str
    images: dict[str, str]  # "busybox", "pyhost" -> image id, sha256:…
    cdi: dict[str, str]  # role -> "nvidia.com/gpu=GPU-…"; empty when this engine does not know the test devices
    docker: list[str] | None  # the start of a `docker` command line on this engine, with `compose`; None: none here

    @property
    def private(self) -> bool:
        """Whether this is the engine of this repository's own, which no user's containers depend on."""
        return self.url == main_daemon().url


@contextmanager
def docker_engine() -> Iterator[DockerEngine]:
    """Give an engine with the test images; several processes may do so at a time, and the last one tidies up (a private
    engine is stopped unless it was kept up, a user's own loses the test images). Raise EngineUnavailable."""
    folder = cache_folder()
    use = SharedUse(folder)
    found = find_engine()
    reason = None if found else why_not_here()
    if reason:
        raise EngineUnavailable(f"no container engine answers, and {reason}")
    engine = use.enter(lambda: _prepare(found, folder))
    try:
        yield engine
    finally:
        use.leave(lambda: _tidy(engine, folder))


def find_engine() -> tuple[str, str] | None:
    """Return (url, source) of the engine that answers, or None. Raise EngineUnavailable for a named one that does not,
    or that is not on this machine."""
    for variable in NAMED_BY:
        url = os.environ.get(variable)
        if url:
            if not url.startswith("unix://"):
                raise EngineUnavailable(f"{variable}={url}: the tests use an engine of this machine, unix://… only")
            if not ping(url):
                raise EngineUnavailable(f"{variable}={url} does not answer")
            return url, variable
    found = _context()
    return found if found and ping(found[0]) and _of_this_machine(found[0]) else None


def remove_containers(url: str, prefix: str) -> None:
    """Remove every container whose name starts with `prefix`, running or not."""
    for container in call(url, "GET", "/containers/json?all=1"):
        if any(name.startswith(f"/{prefix}") for name in container["Names"]):
            call(url, "DELETE", f"/containers/{container['Id']}?force=1&v=1")


def _context() -> tuple[str, str] | None:
    from docker.context import ContextAPI

    context = ContextAPI.get_current_context()
    host = str(context.Host or "").replace("http+unix://", "unix://")
    return (host, f"Docker context {context.Name}") if host.startswith("unix://") else None


def _of_this_machine(url: str) -> bool:
    """Whether the engine runs on this kernel: one inside a virtual machine cannot mount this machine's Python."""
    return bool(call(url, "GET", "/info").get("KernelVersion") == platform.release())


def _prepare(found: tuple[str, str] | None, folder: Path) -> DockerEngine:
    url, source = found or (main_daemon().start().url, "private")
    information = call(url, "GET", "/info")
    return DockerEngine(
        url=url,
        source=source,
        daemon_id=information["ID"],
        images=ensure_images(url, _busybox(folder)),
        cdi=_known_devices(information),
        docker=_docker(url),
    )


def _tidy(engine: DockerEngine, folder: Path) -> None:
    if not engine.private:
        remove_images(engine.url)
    elif not kept(folder).exists():
        main_daemon().stop()


def _busybox(folder: Path) -> Path:
    unpacked = folder / "bin" / "busybox"
    own = shutil.which("busybox")
    if unpacked.exists():
        return unpacked
    if own:
        return Path(own)
    raise EngineUnavailable("the test image needs a static busybox: apt-get install busybox-static")


def _known_devices(information: dict[str, Any]) -> dict[str, str]:
    known = {device.get("ID") for device in information.get("DiscoveredDevices") or ()}
    return NAMES if known >= set(NAMES.values()) else {}


def _docker(url: str) -> list[str] | None:
    try:
        return docker_command(url)
    except EngineUnavailable:
        own = shutil.which("docker")
    if own is None:
        return None
    has_compose = subprocess.run([own, "compose", "version"], capture_output=True, check=False).returncode == 0
    return [own, "--host", url] if has_compose else None
