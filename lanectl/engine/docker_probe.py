"""Whether an engine can inject CDI devices: a probe container is the last word.

The list in `docker info` can be missing while CDI works, and can name a device whose node or library is not there.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lanectl.core.container import LABEL_ROLE
from lanectl.engine.docker_api import DockerApi, Refusal
from lanectl.errors import EngineError, EngineUnknown, NotThere

PROBE_ROLE = "cdi-probe"
PROBE_NAME = "lanectl-cdi-probe"  # then the pid of the process that made it, then a random part
NO_SUCH_PROGRAM = "/lanectl-cdi-probe-runs-no-program"
REMOVE_TRIES = 3
REMOVE_AGAIN_S = 0.2  # a removal takes some 10 ms; one that another already makes may take as long as this
NOT_FOUND = 127  # the exit code an engine records when all was set up, devices too, and only the program is missing

# The API has no code for it: a CDI failure is a 500 like any other, so its text is the one thing to go by.
# Docker: 'CDI device injection failed: unresolvable CDI devices X'; CDI off: 'could not select device driver "cdi"'.
# Podman: 'setting up CDI devices: unresolvable CDI devices X'.
_CDI_WORDS = re.compile(r'CDI device|device driver "cdi"', re.IGNORECASE)


def blames_cdi(words: str) -> bool:
    """Return whether the engine's words say that it could not resolve or inject a CDI device."""
    return bool(_CDI_WORDS.search(words))


def cdi_hint(known: Sequence[str] | None) -> str:
    """Given the CDI names an engine knows, return what to look at when it does not know one."""
    if known is None:
        names = "this engine does not list its CDI names"
    else:
        names = f"the engine knows {', '.join(known) or 'no CDI device at all'}"
    return (
        f"{names}. Make the spec with `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; a device in two files "
        "of one directory vanishes, /var/run/cdi wins over /etc/cdi, an Engine before 28.3 needs features.cdi"
    )


def cdi_problem(api: DockerApi, image_id: str, devices: Sequence[str]) -> str | None:
    """Given an image and CDI names, return None when a container of it gets these devices, else the engine's own words.

    The container is started with a program that does not exist, so nothing of the image runs: the engine fails on the
    devices first, and only then on the program.
    """
    _sweep(api)
    what = "create a container that probes CDI"
    name = f"{PROBE_NAME}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        answer = api.act("POST", "/containers/create", what=what, params={"name": name}, body=_body(image_id, devices))
        made = api.said(answer, what)
    except EngineUnknown:
        _remove(api, f"/containers/{name}")  # the answer that got lost may have been a yes
        raise
    path = f"/containers/{made['Id']}"
    try:
        api.act("POST", f"{path}/start", what="start a container that probes CDI")
    except Refusal as refusal:
        state = api.get(f"{path}/json", what="look at the container that probes CDI")["State"]
        return None if state["ExitCode"] == NOT_FOUND else refusal.words
    finally:
        _remove(api, path)
    return None


def _body(image_id: str, devices: Sequence[str]) -> dict[str, Any]:
    return {
        "Image": image_id,
        "Entrypoint": [NO_SUCH_PROGRAM],
        "Labels": {LABEL_ROLE: PROBE_ROLE},
        "HostConfig": {
            "NetworkMode": "none",
            "LogConfig": {"Type": "none"},
            "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": list(devices)}],
        },
    }


def _sweep(api: DockerApi) -> None:
    """Remove probes that a killed lanectl left behind: those whose maker does not live any more."""
    filters = f'{{"label": ["{LABEL_ROLE}={PROBE_ROLE}"]}}'
    for entry in api.get("/containers/json", what="look for old CDI probes", params={"all": 1, "filters": filters}):
        maker = entry["Names"][0].removeprefix(f"/{PROBE_NAME}-").partition("-")[0]
        if not Path("/proc", maker).exists():
            _remove(api, f"/containers/{entry['Id']}")


def _remove(api: DockerApi, path: str) -> None:
    """Remove a probe; one that is gone is fine. What fails is tried again: a probe is nobody's to clean up but ours."""
    for left in reversed(range(REMOVE_TRIES)):
        try:
            api.act("DELETE", path, what="remove a container that probed CDI", params={"force": 1, "v": 1})
            return
        except EngineError:
            if _is_gone(api, path):
                return
            if not left:
                raise
            time.sleep(REMOVE_AGAIN_S)


def _is_gone(api: DockerApi, path: str) -> bool:
    try:
        api.get(f"{path}/json", what="look for a container that probed CDI")
    except NotThere:
        return True
    except EngineError:
        pass
    return False
