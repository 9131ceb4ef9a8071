"""One private Docker daemon, from the unpacked programs, that shares nothing with any other daemon."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.engine_api import call, ping
from tests.support.engine_cdi import write_specs
from tests.support.engine_packages import SYSTEM_PATH, EngineUnavailable, cache_folder, ensure_programs
from tests.support.poll import until

START_LIMIT_S = 30.0  # seen: about 1 s; a loaded two-core machine gets plenty
STOP_LIMIT_S = 60.0  # the longest stop time of a container in the tests (30 s), and the daemon's own clean-up
SWEEP_LIMIT_S = 2.0  # for a containerd or shim to act on a signal
RUN_FOLDER = Path("/run/lanectl-test-engine")  # short: a socket's path has at most 107 bytes
MARK_DIGITS = 7  # of the root's hash: with "lanectl-" the 15 characters that an interface's name may have
SIOCBRADDBR, SIOCBRDELBR = 0x89A0, 0x89A1  # linux/sockios.h: create and delete a bridge
SIOCSIFFLAGS = 0x8914  # linux/sockios.h: set an interface's flags (struct ifreq: name, short)
LOG_TAIL_LINES = 8


def daemon_config(root: Path, run: Path, cdi_dirs: Sequence[Path], bridge: str | None) -> dict[str, Any]:
    """Given its folders, return the configuration of a daemon that shares nothing with another one.

    One without a bridge has host networking only, and leaves the machine's packet filter alone.
    """
    config: dict[str, Any] = {
        "data-root": str(root / "data"),
        "exec-root": str(run / "exec"),
        "pidfile": str(run / "docker.pid"),
        "hosts": [f"unix://{run / 'docker.sock'}"],
        "cdi-spec-dirs": [str(folder) for folder in cdi_dirs],
        "features": {"cdi": True},
    }
    if bridge:
        config |= {"bridge": bridge}
    else:
        config |= {"bridge": "none", "iptables": False, "ip6tables": False}
    return config


def ensure_bridge(name: str) -> None:
    """Make a network bridge of this name unless there is one.

    The name is our own because a daemon that starts with `bridge: none` deletes docker0, whoever uses it.
    """
    if Path(f"/sys/class/net/{name}").exists():
        return
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCBRADDBR, name.encode() + b"\0")


def remove_bridge(name: str) -> None:
    """Take the bridge away again if it is there; a bridge must be down for that."""
    if Path(f"/sys/class/net/{name}").exists():
        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", name.encode(), 0))
            fcntl.ioctl(any_socket, SIOCBRDELBR, name.encode() + b"\0")


class Daemon:
    """One Docker daemon with its own containerd, data and socket.

    `root` keeps its images and containers between starts, and is what tells it from any other; `name` is for people.
    The CDI folder `root/cdi` has the specs of tests/support/engine_cdi.py unless `cdi_dirs` names others.
    """

    def __init__(self, root: Path, name: str, *, bridged: bool = False, cdi_dirs: Sequence[Path] | None = None) -> None:
        self.root = root
        mark = hashlib.sha256(bytes(root.resolve())).hexdigest()[:MARK_DIGITS]
        self.run = RUN_FOLDER / f"{name}-{mark}"
        self.url = f"unix://{self.run / 'docker.sock'}"
        self.log = root / "dockerd.log"
        self.cdi_dirs = list(cdi_dirs) if cdi_dirs is not None else [root / "cdi"]
        self._writes_cdi = cdi_dirs is None
        self._bridge = f"lanectl-{mark}" if bridged else None
        self._config = root / "daemon.json"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, within_s: float = START_LIMIT_S) -> Daemon:
        """Start the daemon unless it runs, and return once it answers. Raise EngineUnavailable when it does not."""
        if self.running():
            return self
        programs = ensure_programs(cache_folder())
        self.stop()  # what a killed daemon left behind
        self._write_config()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [programs / "dockerd", "--config-file", self._config],
                env={"PATH": f"{programs}:{SYSTEM_PATH}", "HOME": str(self.root)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C for the tests is not one for the daemon
            )
        process = self._process
        try:
            until(lambda: self.running() or process.poll() is not None, within_s, "the private engine answers")
        except AssertionError as error:
            self.stop()
            raise EngineUnavailable(f"{error}; {self._log_tail()}") from error
        if process.poll() is not None:
            raise EngineUnavailable(f"dockerd exited {process.returncode}; {self._log_tail()}")
        return self

    def stop(self) -> None:
        """Kill the containers, stop the daemon, and wait until it, containerd and the shims are gone."""
        if self.running():
            for container in call(self.url, "GET", "/containers/json"):
                with contextlib.suppress(OSError):  # it may end by itself meanwhile
                    call(self.url, "POST", f"/containers/{container['Id']}/kill")
        self._end()

    def restart(self) -> None:
        """Stop and start as `systemctl restart docker` does: running containers get their own stop time (10 s unless
        they say otherwise), the daemon's id stays, restart policies act."""
        self._end()
        self.start()

    def _end(self) -> None:
        pid = self.pid()
        if pid is not None:
            _signal(pid, signal.SIGTERM)
            if not _gone_within(STOP_LIMIT_S, lambda: self._ended(pid)):
                self.kill()
        self._sweep()

    def kill(self) -> None:
        """SIGKILL the daemon alone, as a crash would; running containers stay until the next start."""
        pid = self.pid()
        if pid is not None:
            _signal(pid, signal.SIGKILL)
            until(lambda: self._ended(pid), STOP_LIMIT_S, "a killed dockerd is gone")

    def running(self) -> bool:
        """Return whether this daemon's process lives and answers a ping."""
        return self.pid() is not None and ping(self.url)

    def id(self) -> str:
        """Return the id that `docker info` reports."""
        return str(call(self.url, "GET", "/info")["ID"])

    def pid(self) -> int | None:
        """Return the daemon's process id, or None when it is not alive (a reused pid is told by its command)."""
        if self._process is not None:
            self._process.poll()  # reaps it when it was our child
        try:
            pid = int((self.run / "docker.pid").read_text())
        except (OSError, ValueError):
            pid = self._process.pid if self._process is not None else 0
        return pid if str(self._config) in _command(pid) else None

    def _ended(self, pid: int) -> bool:
        """Whether every thread of the process has ended; until then it holds the locks of its data."""
        if self._process is not None:
            self._process.poll()
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            return state == "Z" and len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
        except OSError:
            return True

    def _write_config(self) -> None:
        for folder in (self.root, self.run):
            folder.mkdir(parents=True, exist_ok=True)
        if self._bridge:
            ensure_bridge(self._bridge)
        if self._writes_cdi:
            write_specs(self.root / "cdi")
        config = daemon_config(self.root, self.run, self.cdi_dirs, self._bridge)
        self._config.write_text(json.dumps(config, indent=2))

    def _helpers(self) -> list[int]:
        """Return the containerd and the shims of this daemon: both name its exec folder in their command line."""
        commands = {pid: _command(pid) for pid in _pids()}
        mark = str(self.run / "exec")
        return [
            pid
            for pid, command in commands.items()
            if mark in command and Path(command.split()[0]).name.startswith("containerd")
        ]

    def _sweep(self) -> None:
        """End what outlived the daemon: its containerd, its shims, their containers, and what a crash leaves behind
        (pid files that would make the next daemon wait 10 s for a dead containerd, the mount of the data folder)."""
        for attempt in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._helpers():
                for child in _children(pid):
                    _signal(child, signal.SIGKILL)
                _signal(pid, attempt)
            if _gone_within(SWEEP_LIMIT_S, lambda: not self._helpers()):
                break
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for point in sorted((point for point in mounted if self._owns(Path(point))), reverse=True):
            subprocess.run(["umount", "--lazy", point], check=False)
        shutil.rmtree(self.run, ignore_errors=True)
        if self._bridge:
            remove_bridge(self._bridge)

    def _owns(self, path: Path) -> bool:
        return path.is_relative_to(self.root) or path.is_relative_to(self.run)

    def _log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return f"{self.log} ends with:\n" + "\n".join(lines)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command(pid: int) -> str:
    """Return a process's command line; empty when it is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _gone_within(limit_s: float, gone: Callable[[], bool]) -> bool:
    try:
        return until(gone, limit_s, "gone")
    except AssertionError:
        return False
