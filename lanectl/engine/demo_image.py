"""The image of the demo's containers: an empty tree of mount points, made here and never pulled.

Its containers see this machine's Python through read-only binds, each at its own path.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lanectl.errors import Unreachable

REPOSITORY = "lanectl-demo"
FOLDERS = ("dev", "etc", "lib", "lib64", "proc", "root", "run", "sys", "tmp", "usr", "var")
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin"}
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64")  # an interpreter's loader and libraries; aarch64 has no /lib64
PACKAGES = ("lanectl", "numpy")
ANSWER_WITHIN_S = 30  # an import of 10 KiB takes some 50 ms


def ensure_image(endpoint: str) -> tuple[str, str]:
    """Given an engine's endpoint, return (its daemon's id, the image's id), importing the image if it is missing.

    Raise `Unreachable` in the engine's own words.
    """
    from docker import APIClient
    from docker.errors import DockerException, ImageNotFound
    from requests.exceptions import RequestException

    tree = _tree()
    tag = hashlib.sha256(tree).hexdigest()[:12]
    try:
        client: Any = APIClient(base_url=endpoint, version="auto", timeout=ANSWER_WITHIN_S)
        try:
            found = client.inspect_image(f"{REPOSITORY}:{tag}")
        except ImageNotFound:
            client.import_image_from_data(tree, repository=REPOSITORY, tag=tag)
            found = client.inspect_image(f"{REPOSITORY}:{tag}")
        return str(client.info()["ID"]), str(found["Id"])
    except (DockerException, RequestException) as error:
        raise Unreachable(
            f"the engine at {endpoint} cannot be used: {error}",
            "set DOCKER_HOST, or leave out --docker: the demo needs no container engine",
        ) from error


def python_binds() -> tuple[str, ...]:
    """Return binds, read-only and each at its own path, with which a container runs this very interpreter."""
    packages = (importlib.util.find_spec(name) for name in PACKAGES)
    origins = [Path(spec.origin).parent.parent for spec in packages if spec is not None and spec.origin]
    wanted = [*map(Path, SYSTEM_FOLDERS), Path(sys.prefix), Path(sys.base_prefix), *origins]
    return tuple(f"{path}:{path}:ro" for path in _outermost(path for path in wanted if path.exists()))


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Return the paths without duplicates and without those that lie inside another one."""
    unique = list(dict.fromkeys(paths))
    return [path for path in unique if not any(other in path.parents for other in unique)]


def _tree() -> bytes:
    """Return a tar of the empty tree; the same bytes every time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for name, target in LINKS.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return out.getvalue()
