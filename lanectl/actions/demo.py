"""`lanectl demo`: a site to try lanectl on, with a production that really serves and a client that watches it."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lanectl.actions import outside_client
from lanectl.actions.operation import locked
from lanectl.actions.station import Station
from lanectl.actions.status import status
from lanectl.actions.unfinished import refuse_unfinished
from lanectl.actions.watching import of_owed
from lanectl.core.container import LABEL_SITE
from lanectl.core.lane import DEFAULT_STOP_GRACE_S
from lanectl.core.owed import Production
from lanectl.core.site import LOOPBACK
from lanectl.errors import ExitCode, LaneError, Unreachable
from lanectl.ports import Prober
from lanectl.site.demo import SERVED_MODEL, write_demo_site
from lanectl.site.load import STATION_FILE
from lanectl.store.files import ensure_dir, exists, names, read_text, write_atomic

MARK = "made-by-lanectl-demo"  # in state/: only such a site is ever taken down by `lanectl demo --stop`
# The example ports of the documentation, else the next pair that is free; below the ports that clients are given.
FIRST_PORT, LAST_PORT, PORT_STEP, TRIAL_ABOVE = 30006, 32000, 20, 10
CLIENT_WITHIN_S = 30.0  # for its first good answer, and for its last words; it takes milliseconds


@dataclass(frozen=True, slots=True)
class DemoHost:
    """What a demo site's lanes run on: see `site.demo.write_demo_site`."""

    engine: str
    python: str
    image: str
    endpoint: str = ""
    daemon_id: str | None = None
    binds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Watched:
    """What the outside client saw. `longest_gap_s`: from one good answer to the next, at most."""

    answers: int
    failures: int
    longest_gap_s: float


def make_site(root: Path, host: DemoHost, prober: Prober) -> None:
    """Make a demo site in `root`. Raise `LaneError` (exit 2) when something else is there, or no port is free."""
    if names(root):
        raise LaneError(f"{root} is not empty", "name a new directory for the demo site", ExitCode.USAGE)
    ports = _free_ports(prober)
    try:
        write_demo_site(
            root,
            engine=host.engine,
            python=host.python,
            image=host.image,
            ports=ports,
            endpoint=host.endpoint,
            daemon_id=host.daemon_id,
            binds=host.binds,
        )
    except OSError as error:
        raise LaneError(f"the demo site cannot be made in {root}: {error}", "name another directory") from error
    ensure_dir(root / "state")
    write_atomic(root / "state" / MARK, b"")


def is_demo(root: Path) -> bool:
    """True when `root` is a site that `make_site` made."""
    return exists(root / STATION_FILE) and exists(root / "state" / MARK)


def refresh_image(root: Path, old: str, host: DemoHost) -> None:
    """Name the environment as it is now: another version of lanectl has another hash."""
    path = root / STATION_FILE
    write_atomic(path, read_text(path).replace(old, host.image).encode(), 0o644)


def needs(station: Station) -> str:
    """Say what brings production up: "" when it serves, `start` when it is recorded and down, `boot` when it is not."""
    seen = status(station)
    if seen.open_swap is not None:
        raise LaneError(f"swap {seen.open_swap.swap} of this demo site is unfinished", "run `lanectl recover` first")
    if seen.production is None:
        return "boot"
    return "" if seen.serving is not None and seen.serving.proven else "start"


@contextmanager
def watched(station: Station) -> Iterator[list[Watched]]:
    """Let an outside client ask the public port meanwhile; the list given holds what it saw once this is over.

    Raise `Unreachable` when it gets no good answer to begin with.
    """
    site = station.site
    argv = [sys.executable, "-I", "-S", outside_client.__file__]
    client = subprocess.Popen(
        [*argv, site.client_host(), str(site.public_port), SERVED_MODEL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C is for the swap to answer
    )
    seen: list[Watched] = []
    try:
        if _line(client.stdout) != "serving":
            raise Unreachable(f"no client gets an answer on port {site.public_port}", "`lanectl status` says why")
        yield seen
        if client.stdin is not None:
            client.stdin.close()
        with suppress(ValueError, TypeError):
            seen.append(Watched(**json.loads(_line(client.stdout))))
    finally:
        client.kill()
        client.wait()


def take_down(station: Station) -> int:
    """Stop and remove every container of a demo site and forget its production; return how many there were.

    Raise `Busy`, `Unfinished`, `LaneError` (exit 2) for any other site.
    """
    if not is_demo(Path(station.site.root)):
        raise LaneError(f"{station.site.root} was not made by `lanectl demo`", "`lanectl stop` stops production")
    with locked(station):
        refuse_unfinished(station)
        current = station.production().current
        watchdog = of_owed(station, current) if current else None
        if watchdog is not None:
            watchdog.stand_by()
        containers = station.engine.containers({LABEL_SITE: station.site.id})
        for container in containers:
            station.engine.stop(container.id, DEFAULT_STOP_GRACE_S)
            station.engine.remove(container.id)
        if watchdog is not None:
            watchdog.end()
        for path in current.shm if current else ():
            Path(path).unlink(missing_ok=True)
        station.record_production(Production())
    return len(containers)


def _free_ports(prober: Prober) -> tuple[int, int]:
    for public in range(FIRST_PORT, LAST_PORT, PORT_STEP):
        if prober.can_bind(LOOPBACK, public) and prober.can_bind(LOOPBACK, public + TRIAL_ABOVE):
            return public, public + TRIAL_ABOVE
    raise LaneError(f"no free pair of ports from {FIRST_PORT} to {LAST_PORT}", "`ss -ltn` shows who listens")


def _line(stream: IO[str] | None) -> str:
    """Return the client's next line, "" when it says nothing in time or has ended."""
    if stream is None or not select.select([stream], [], [], CLIENT_WITHIN_S)[0]:
        return ""
    return stream.readline().strip()
