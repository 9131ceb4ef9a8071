"""Images for the tests, made here and never pulled, and the binds that let a container run this machine's Python.

`busybox`: one static program with all its applets. `pyhost`: an empty tree of mount points and nothing else; with
`python_binds()` its containers run the very interpreter and packages that run the tests. Standard library only.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlencode

from tests.support.engine_api import call

LABEL = "lanectl.test"  # on every image and container of the tests
REPOSITORY = "lanectl-test"
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64")  # an interpreter's loader and libraries; aarch64 has no /lib64
MOUNT_POINTS = ("usr", "lib", "lib64", "tmp", "etc", "dev", "proc", "sys", "root", "run", "var")
REPOSITORY_ROOT = Path(__file__).resolve().parents[2]


def ensure_images(url: str, busybox: Path) -> dict[str, str]:
    """Given an engine and a static busybox, return {name: image id} of the test images, importing what is missing."""
    return {
        "busybox": _ensure(url, "busybox", _busybox_tree(busybox)),
        "pyhost": _ensure(url, "pyhost", _pyhost_tree()),
    }


def remove_images(url: str) -> None:
    """Remove the test images, tags and all, and nothing else."""
    wanted = urlencode({"filters": json.dumps({"label": [LABEL]})})
    for image in call(url, "GET", f"/images/json?{wanted}"):
        call(url, "DELETE", f"/images/{image['Id']}?force=1")


def python_binds(python: Path | None = None, extra: Iterable[Path] = ()) -> list[str]:
    """Given an interpreter (this one by default), return Docker binds, read-only and each at its own path, with
    which a `pyhost` container runs it: the system's libraries, its environment, its base, this repository, `extra`.
    """
    prefixes = _prefixes(python) if python else [Path(sys.prefix), Path(sys.base_prefix)]
    wanted = [*map(Path, SYSTEM_FOLDERS), *prefixes, REPOSITORY_ROOT, *extra]
    return [f"{path}:{path}:ro" for path in outermost(path for path in wanted if path.exists())]


def outermost(paths: Iterable[Path]) -> list[Path]:
    """Return the given paths without duplicates and without those that lie inside another one, in their order."""
    unique = list(dict.fromkeys(paths))
    return [path for path in unique if not any(other in path.parents for other in unique)]


def _prefixes(python: Path) -> list[Path]:
    code = "import sys; print(sys.prefix); print(sys.base_prefix)"
    said = subprocess.run([python, "-c", code], text=True, capture_output=True, check=True)
    return [Path(line) for line in said.stdout.splitlines()]


def _busybox_tree(busybox: Path) -> bytes:
    applets = subprocess.run([busybox, "--list"], text=True, capture_output=True, check=True).stdout.split()
    links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"}
    return _tar(folders=("bin", *MOUNT_POINTS), links=links, programs={"bin/busybox": busybox.read_bytes()})


def _pyhost_tree() -> bytes:
    return _tar(folders=MOUNT_POINTS, links={"bin": "usr/bin", "sbin": "usr/sbin"}, programs={})


def _tar(folders: Iterable[str], links: dict[str, str], programs: dict[str, bytes]) -> bytes:
    """Return a tar of this tree; equal trees give equal bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in folders:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for name, content in programs.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return out.getvalue()


def _ensure(url: str, name: str, tree: bytes) -> str:
    tag = hashlib.sha256(tree).hexdigest()[:12]
    image = f"{REPOSITORY}/{name}:{tag}"
    try:
        return str(call(url, "GET", f"/images/{image}/json")["Id"])
    except OSError:
        options = {"fromSrc": "-", "repo": f"{REPOSITORY}/{name}", "tag": tag, "changes": f"LABEL {LABEL}={name}"}
        call(url, "POST", f"/images/create?{urlencode(options)}", tree)
        return str(call(url, "GET", f"/images/{image}/json")["Id"])
