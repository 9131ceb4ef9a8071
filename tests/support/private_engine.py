"""A private Docker Engine for the tests: `python -m tests.support.private_engine up|down|status|env`.

`up` starts the daemon and keeps it until `down`; the tests start one by themselves and the last test process
stops it. `cdi FOLDER` writes the test devices for a daemon of your own. A second daemon beside the first (two
Stations on one machine) is `Daemon(root, name)` of engine_daemon.py.
Standard library only, so that a Makefile can call it before anything is installed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.engine_api import call
from tests.support.engine_cdi import write_specs
from tests.support.engine_daemon import Daemon
from tests.support.engine_images import ensure_images
from tests.support.engine_lock import locked
from tests.support.engine_packages import EngineUnavailable, cache_folder, why_not_here


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


def kept(folder: Path) -> Path:
    """Return the marker that says: stay up when the last test process is done (`up` sets it, `down` removes it)."""
    return folder / "kept"


def _up() -> int:
    began = time.monotonic()
    folder = cache_folder()
    with locked(folder / "change.lock"):
        daemon = main_daemon().start()
        kept(folder).touch()
        ensure_images(daemon.url, folder / "bin" / "busybox")
    print(f"{daemon.url} (id {daemon.id()}, {time.monotonic() - began:.1f} s)")
    return 0


def _down() -> int:
    folder = cache_folder()
    with locked(folder / "change.lock"):
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
