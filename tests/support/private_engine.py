"""A private Docker Engine for the tests: `python -m tests.support.private_engine up|down|status|env`.

`up` starts the daemon and keeps it until `down`; the tests start one by themselves and the last test process
stops it. `cdi FOLDER` writes the test devices for a daemon of your own. A second daemon beside the first (two
Stations on one machine) is `Daemon(root, name)`.
Standard library only, so that a Makefile can call it before anything is installed.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.engine_api import call, ping
from tests.support.engine_cdi import write_specs
from tests.support.engine_images import ensure_images
from tests.support.engine_packages import SYSTEM_PATH, EngineUnavailable, ensure_programs, why_not_here
from tests.support.poll import until

T = TypeVar("T")

START_LIMIT_S = 30.0  # seen: about 1 s; a loaded two-core machine gets plenty
SHUTDOWN_GRACE_S = 3  # what the daemon gives running containers; tests want no patience
STOP_LIMIT_S = 20.0  # SHUTDOWN_GRACE_S, then the daemon's own clean-up, with room
SWEEP_LIMIT_S = 2.0  # for a containerd or shim to act on a signal
RUN_FOLDER = Path("/run/lanectl-test-engine")  # short: a socket's path has at most 107 bytes
LOG_TAIL_LINES = 8


def cache_folder() -> Path:
    """Return where programs and data are kept: LANECTL_TEST_ENGINE_CACHE, else the user's cache folder."""
    chosen = os.environ.get("LANECTL_TEST_ENGINE_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "lanectl-test-engine"


def daemon_config(root: Path, run: Path, cdi_dirs: Sequence[Path], *, bridged: bool) -> dict[str, Any]:
    """Given its folders, return the configuration of a daemon that shares nothing with another one.

    Only one daemon of a machine may own the bridge and the packet filter; the others have host networking only.
    """
    config: dict[str, Any] = {
        "data-root": str(root / "data"),
        "exec-root": str(run / "exec"),
        "pidfile": str(run / "docker.pid"),
        "hosts": [f"unix://{run / 'docker.sock'}"],
        "cdi-spec-dirs": [str(folder) for folder in cdi_dirs],
        "features": {"cdi": True},
        "shutdown-timeout": SHUTDOWN_GRACE_S,
    }
    if not bridged:
        config |= {"bridge": "none", "iptables": False, "ip6tables": False}
    return config


class Daemon:
    """One Docker daemon with its own containerd, data and socket.

    `root` keeps its images and containers between starts; `name` must be unique on the machine. The CDI folder
    `root/cdi` has the specs of tests/support/engine_cdi.py unless `cdi_dirs` names others.
    """

    def __init__(self, root: Path, name: str, *, bridged: bool = False, cdi_dirs: Sequence[Path] | None = None) -> None:
        self.root = root
        self.run = RUN_FOLDER / name
        self.url = f"unix://{self.run / 'docker.sock'}"
        self.log = root / "dockerd.log"
        self.cdi_dirs = list(cdi_dirs) if cdi_dirs is not None else [root / "cdi"]
        self._writes_cdi = cdi_dirs is None
        self._bridged = bridged
        self._config = root / "daemon.json"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, within_s: float = START_LIMIT_S) -> Daemon:
        """Start the daemon unless it runs, and return once it answers. Raise EngineUnavailable when it does not."""
        if self.running():
            return self
        with _locked(cache_folder() / "programs.lock"):
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

    def stop(self, within_s: float = STOP_LIMIT_S) -> None:
        """Stop the daemon with its containers and wait until it, containerd and the shims are gone."""
        pid = self.pid()
        if pid is not None:
            _signal(pid, signal.SIGTERM)
            if not _gone_within(within_s, lambda: self.pid() is None):
                self.kill()
        self._sweep()

    def restart(self) -> None:
        """Stop and start, as `systemctl restart docker` does: the daemon id stays, restart policies act."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL the daemon alone, as a crash would; running containers stay until the next start."""
        pid = self.pid()
        if pid is not None:
            _signal(pid, signal.SIGKILL)
            until(lambda: self.pid() is None, STOP_LIMIT_S, "a killed dockerd is gone")

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

    def _write_config(self) -> None:
        for folder in (self.root, self.run):
            folder.mkdir(parents=True, exist_ok=True)
        if self._writes_cdi:
            write_specs(self.root / "cdi")
        config = daemon_config(self.root, self.run, self.cdi_dirs, bridged=self._bridged)
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
        """End what outlived the daemon: its containerd, its shims, and their containers."""
        for attempt in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._helpers():
                for child in _children(pid):
                    _signal(child, signal.SIGKILL)
                _signal(pid, attempt)
            if _gone_within(SWEEP_LIMIT_S, lambda: not self._helpers()):
                break
        (self.run / "docker.pid").unlink(missing_ok=True)

    def _log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return f"{self.log} ends with:\n" + "\n".join(lines)


def main_daemon() -> Daemon:
    """Return the one daemon that every test process of this user shares (started or not)."""
    return Daemon(cache_folder() / "main", "main", bridged=True)


def docker_command(url: str) -> list[str]:
    """Return the start of a `docker` command line on `url`, with the compose plugin, from the unpacked programs.

    It reads no configuration of the user's. Raise EngineUnavailable when the programs are not unpacked.
    """
    cache = cache_folder()
    docker = cache / "bin" / "docker"
    if not docker.exists():
        raise EngineUnavailable(f"{docker} is not there: python -m tests.support.private_engine up")
    config = cache / "docker-config"
    config.mkdir(exist_ok=True)
    plugins = {"cliPluginsExtraDirs": [str(cache / "bin")]}
    (config / "config.json").write_text(json.dumps(plugins))
    return [str(docker), "--config", str(config), "--host", url]


class SharedUse:
    """Many test processes use one engine; the first one in prepares it and the last one out tidies up.

    Every user holds a shared flock, which the kernel frees on death, so a crash leaves no count behind.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: int | None = None

    def enter(self, prepare: Callable[[], T]) -> T:
        """Take part, run `prepare` alone (it must do nothing when done before), and return what it returns."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with _locked(self._folder / "change.lock"):
            prepared = prepare()
            self._held = os.open(self._folder / "use.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_SH)
            return prepared

    def leave(self, tidy: Callable[[], None]) -> None:
        """Take no part any longer; run `tidy` when nobody else does."""
        if self._held is None:
            return
        with _locked(self._folder / "change.lock"):
            try:
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            else:
                tidy()
            finally:
                os.close(self._held)
                self._held = None


def kept(folder: Path) -> Path:
    """Return the marker that says: stay up when the last test process is done (`up` sets it, `down` removes it)."""
    return folder / "kept"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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


def _up() -> int:
    began = time.monotonic()
    folder = cache_folder()
    with _locked(folder / "change.lock"):
        daemon = main_daemon().start()
        kept(folder).touch()
        ensure_images(daemon.url, folder / "bin" / "busybox")
    print(f"{daemon.url} (id {daemon.id()}, {time.monotonic() - began:.1f} s)")
    return 0


def _down() -> int:
    folder = cache_folder()
    with _locked(folder / "change.lock"):
        kept(folder).unlink(missing_ok=True)
        main_daemon().stop()
    return 0


def _status() -> int:
    daemon = main_daemon()
    if not daemon.running():
        print(f"not running ({why_not_here() or 'python -m tests.support.private_engine up'})")
        return 1
    version = call(daemon.url, "GET", "/version")
    print(f"{daemon.url} pid {daemon.pid()} id {daemon.id()} Docker {version['Version']} API {version['ApiVersion']}")
    return 0


def _env() -> int:
    daemon = main_daemon()
    if not daemon.running():
        return _status()
    print(f"export LANECTL_TEST_DOCKER_HOST={daemon.url}")
    print(f"export PATH={cache_folder() / 'bin'}:$PATH")
    return 0


def _cdi(folder: str) -> int:
    write_specs(Path(folder))
    return 0


def main(arguments: Sequence[str]) -> int:
    """Given a verb and its operands, do it and return the exit code; 2 with the usage for anything else."""
    try:
        match arguments:
            case ["up"]:
                return _up()
            case ["down"]:
                return _down()
            case ["status"]:
                return _status()
            case ["env"]:
                return _env()
            case ["cdi", folder]:
                return _cdi(folder)
    except EngineUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    print("usage: python -m tests.support.private_engine up|down|status|env|cdi FOLDER", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
