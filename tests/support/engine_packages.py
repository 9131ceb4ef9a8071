"""The programs of a private Docker Engine, unpacked from Debian's packages into a folder of their own.

Debian 12 ships Docker 20.10, which knows no CDI. A newer suite carries 28.5, whose daemon needs only glibc 2.34,
so its packages run from a folder on Debian 12. runc and iptables must come from the system's own suite (the
newer runc wants a newer glibc); they are installed when they are missing. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.engine_lock import locked

SUITE = "forky"  # the Debian suite that carries Docker 28.5
PINNED = {  # taken at exactly these versions while the archive has them, else at the suite's
    "docker.io": "28.5.2+dfsg4-5",
    "docker-cli": "28.5.2+dfsg4-5",
    "docker-compose": "2.40.3-3",
    "containerd": "2.1.9+ds1-5",
    "tini-static": "0.19.0-6+b2",
}
OWN_SUITE_FILES = ("busybox-static",)  # static, so it is unpacked beside the others and not installed
SYSTEM_PACKAGES = {"runc": "runc", "iptables": "iptables"}  # command -> package, from the system's own suite
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS = {  # name on the PATH of the daemon -> where the packages put it
    "dockerd": "usr/sbin/dockerd",
    "docker-proxy": "usr/sbin/docker-proxy",
    "containerd": "usr/bin/containerd",
    "containerd-shim-runc-v2": "usr/bin/containerd-shim-runc-v2",
    "docker-init": "usr/bin/tini-static",
    "docker": "usr/bin/docker",
    "docker-compose": "usr/libexec/docker/cli-plugins/docker-compose",
    "busybox": "bin/busybox",
}
ONE_LINE_OPTIONS = {"signed-by": "signed-by", "trusted": "trusted", "arch": "architectures"}  # sources.list(5)
COMMAND_LIMIT_S = 300.0  # 72 MB at 256 kB/s
TAIL_CHARS = 600  # of a failed command's output: the last lines say why


def cache_folder() -> Path:
    """Return where programs and data are kept: LANECTL_TEST_ENGINE_CACHE, else the user's cache folder."""
    chosen = os.environ.get("LANECTL_TEST_ENGINE_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "lanectl-test-engine"


class EngineUnavailable(Exception):
    """No private engine here; the message says why in words that a skip can carry."""


def second_source(entries: Mapping[str, str], codename: str, suite: str = SUITE) -> str:
    """Given apt's source files (name -> text), return a one-entry deb822 source for `suite`.

    It is the machine's own Debian entry (types include deb, suites include `codename`, components include main)
    with only its suite changed, so that mirrors and keyrings stay the machine's. Raise EngineUnavailable when
    there is no such entry.
    """
    for name, text in sorted(entries.items()):
        stanzas = _deb822(text) if name.endswith(".sources") else _one_line(text)
        for stanza in stanzas:
            if (
                "deb" in stanza.get("types", "").split()
                and codename in stanza.get("suites", "").split()
                and "main" in stanza.get("components", "").split()
                and stanza.get("enabled", "yes") != "no"
            ):
                fields = stanza | {"types": "deb", "suites": suite, "components": "main"}
                return "".join(f"{key.title()}: {value}\n" for key, value in fields.items())
    raise EngineUnavailable(f"no apt source of this machine has the suite {codename} with component main")


def _deb822(text: str) -> list[dict[str, str]]:
    stanzas = []
    for block in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        key = ""
        for line in block.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if line[0] in " \t" and key:
                fields[key] += "\n" + line
            elif ":" in line:
                key, value = line.split(":", 1)
                key = key.strip().lower()
                fields[key] = value.strip()
        stanzas.append(fields)
    return stanzas


def _one_line(text: str) -> list[dict[str, str]]:
    stanzas = []
    for line in text.splitlines():
        found = re.match(r"^(deb)\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line)
        if not found:
            continue
        kind, options, uri, suite, components = found.groups()
        stanza = {"types": kind, "uris": uri, "suites": suite, "components": components.strip()}
        for option in (options or "").split():
            key, _, value = option.partition("=")
            if key in ONE_LINE_OPTIONS:
                stanza[ONE_LINE_OPTIONS[key]] = value.replace(",", " ")
        stanzas.append(stanza)
    return stanzas


def release(os_release: str) -> tuple[str, str]:
    """Given the text of /etc/os-release, return (ID, VERSION_CODENAME); either may be empty."""
    fields = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    return fields.get("ID", "").strip('"'), fields.get("VERSION_CODENAME", "").strip('"')


def why_not_here() -> str | None:
    """Return why no private engine can be brought up on this machine, or None when it can be tried."""
    os_release = Path("/etc/os-release")
    distribution, codename = release(os_release.read_text()) if os_release.exists() else ("", "")
    if distribution != "debian" or not codename:
        return f"a private engine needs Debian (this is {distribution or 'unknown'})"
    if os.geteuid() != 0:
        return "a private engine needs root"
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return "a private engine needs apt-get and dpkg"
    return None


def ensure_programs(cache: Path) -> Path:
    """Given the cache folder, return the folder that has PROGRAMS, downloading and unpacking when needed.

    Quick when done before; of two callers one waits. Raise EngineUnavailable when it cannot be done.
    """
    reason = why_not_here()
    if reason:
        raise EngineUnavailable(reason)
    programs = cache / "bin"
    with locked(cache / "programs.lock"):
        if _recipe_seen(cache) != _recipe():
            _unpack(cache)
            _link(cache / "tree", programs)
            (cache / "recipe.json").write_text(json.dumps(_recipe()))
        _ensure_system_packages()
    return programs


def _recipe() -> dict[str, object]:
    return {"suite": SUITE, "pinned": PINNED, "programs": PROGRAMS}


def _recipe_seen(cache: Path) -> object:
    try:
        return json.loads((cache / "recipe.json").read_text())
    except (OSError, ValueError):
        return None


def _unpack(cache: Path) -> None:
    apt = cache / "apt"
    for folder in ("sources", "lists/partial", "debs"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    _, codename = release(Path("/etc/os-release").read_text())
    (apt / "sources" / "newer.sources").write_text(second_source(_apt_sources(), codename))
    newer = [
        "-oAPT::Sandbox::User=root",  # the folder may be root's alone
        f"-oDir::Etc::SourceParts={apt / 'sources'}",
        "-oDir::Etc::SourceList=/dev/null",
        f"-oDir::State::Lists={apt / 'lists'}",
        "-oDir::Cache::pkgcache=",  # the system's own cache stays as it is
        "-oDir::Cache::srcpkgcache=",
    ]
    _run(["apt-get", *newer, "update", "-qq"])
    wanted = [_at_pin(package, newer) for package in PINNED]
    for deb in (apt / "debs").glob("*.deb"):
        deb.unlink()
    _run(["apt-get", *newer, "download", *wanted], cwd=apt / "debs")
    own = ["apt-get", "-oAPT::Sandbox::User=root", "download", *OWN_SUITE_FILES]
    _run_after_update(own, cwd=apt / "debs")
    shutil.rmtree(cache / "tree", ignore_errors=True)
    for deb in sorted((apt / "debs").glob("*.deb")):
        _run(["dpkg", "-x", str(deb), str(cache / "tree")])
        deb.unlink()


def _at_pin(package: str, options: Sequence[str]) -> str:
    listed = _run(["apt-cache", *options, "madison", package])
    versions = {line.split("|")[1].strip() for line in listed.splitlines() if line.count("|") >= 2}
    return f"{package}={PINNED[package]}" if PINNED[package] in versions else package


def _apt_sources() -> dict[str, str]:
    etc = Path("/etc/apt")
    files = [etc / "sources.list", *(etc / "sources.list.d").glob("*.list")]
    files += (etc / "sources.list.d").glob("*.sources")
    return {file.name: file.read_text() for file in files if file.is_file()}


def _link(tree: Path, programs: Path) -> None:
    shutil.rmtree(programs, ignore_errors=True)
    programs.mkdir(parents=True)
    for name, inside in PROGRAMS.items():
        target = tree / inside
        if not target.exists():
            raise EngineUnavailable(f"Debian's packages no longer hold {inside}")
        (programs / name).symlink_to(target)


def _ensure_system_packages() -> None:
    missing = [package for cmd, package in SYSTEM_PACKAGES.items() if not shutil.which(cmd, path=SYSTEM_PATH)]
    if missing:
        _run_after_update(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing])


def _run_after_update(command: Sequence[str], cwd: Path | None = None) -> None:
    """Run an apt command; when it fails, once more after an update (a fresh machine has no package lists)."""
    try:
        _run(command, cwd)
    except EngineUnavailable:
        _run(["apt-get", "update", "-qq"])
        _run(command, cwd)


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C")
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environment, text=True, capture_output=True, timeout=COMMAND_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EngineUnavailable(f"`{' '.join(command)}` took longer than {COMMAND_LIMIT_S:.0f} s") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-TAIL_CHARS:]
        raise EngineUnavailable(f"`{' '.join(command)}` exited {done.returncode}: {said}")
    return done.stdout
