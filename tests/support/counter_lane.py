"""A lane with a sidecar on a real engine, both sides counter_lane_process.py, and its watchdog."""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lanectl.actions.station import Station
from lanectl.actions.watch_life import lives
from lanectl.actions.watch_view import WatchView
from lanectl.actions.watchdog import Guarded, Watchdog
from lanectl.core.container import Container, CreateArgs
from lanectl.core.lane import Watchdog as Policy
from lanectl.errors import LaneError
from lanectl.jobs import DetachedJobs
from lanectl.store.process import ProcessId, alive, identify
from lanectl.store.process import signal as send
from lanectl.store.watch import Status, TripRecord, WatchFiles, watch_key
from tests.support import counter_lane_process as words
from tests.support.engine_images import python_binds
from tests.support.poll import until
from tests.support.station import SOON_S, RealSite

STALL_S = 0.3
SCRIPT = str(Path(words.__file__))
KILL = 9


class CounterLane:
    """One lane: `server` and `sidecar` are container ids. Its counters lie in shared memory at `path`."""

    def __init__(self, site: RealSite, name: str = "lane", *, stall_s: float = STALL_S, mode: str = "enforce") -> None:
        self.site = site
        self.name = name
        self.path = Path(f"/dev/shm/lanectl-test-{secrets.token_hex(6)}")
        self.counters_fd = -1
        self.station: Station = site.station("watch", jobs=DetachedJobs())
        self.sidecar = self._create("sidecar")
        self.server = self._create("server")
        self.watchdog = Watchdog(
            self.station,
            Guarded(
                lane=name,
                policy=Policy(str(self.path), stall_s, mode, "dark"),
                services=(("sidecar", self.sidecar), ("server", self.server)),
                server="server",
            ),
        )
        self.files = WatchFiles(site.root / "state" / "watch" / watch_key(self.server))

    def boot(self) -> None:
        """Start sidecar, watchdog and server in their order, and tighten, as a swap does."""
        self.start_sidecar()
        self.watchdog.arm()
        self.start_server()
        self.watchdog.tighten()

    def start_sidecar(self) -> None:
        self.site.engine.start(self.sidecar)
        self._await_line(self.sidecar, "serving")
        self.counters_fd = os.open(self.path, os.O_RDWR)

    def start_server(self) -> None:
        self.site.engine.start(self.server)
        self._await_line(self.server, "up")

    def load(self, on: bool = True) -> None:
        """Let the server publish calls, or none; return once it does."""
        self.set(words.LOADED, int(on))
        if on:
            before = self.word(words.COMPLETED)
            until(lambda: self.word(words.COMPLETED) > before + 2, SOON_S, "calls are completed")

    def word(self, index: int) -> int:
        return int(struct.unpack("<q", os.pread(self.counters_fd, 8, 8 * index))[0])

    def set(self, index: int, value: int) -> None:
        os.pwrite(self.counters_fd, struct.pack("<q", value), 8 * index)

    def deadline(self, stall_s: float = STALL_S) -> float:
        """Given a sidecar that completes nothing any more, return when that is a stall: monotonic seconds."""
        until(lambda: self.word(words.PUBLISHED) > self.word(words.COMPLETED), SOON_S, "a call waits")
        return self.word(words.PUBLISHED_AT) / 1e9 + stall_s

    def seen(self, ref: str) -> Container:
        return self.site.seen(ref)

    def process(self, ref: str) -> ProcessId:
        """Return the first process of a running container."""
        pid = self.seen(ref).pid
        assert pid is not None
        found = identify(pid)
        assert found is not None
        return found

    def signal(self, ref: str, number: int) -> None:
        assert send(self.process(ref), number)

    def runs(self, ref: str) -> bool:
        return self.seen(ref).running

    def view(self) -> WatchView:
        found = Watchdog.read(self.station.state, self.server)
        assert found is not None
        return found

    def status(self) -> Status:
        found = self.files.status()
        assert found is not None
        return found

    def tripped(self, within_s: float = SOON_S) -> TripRecord:
        """Wait until it tripped, both containers are gone and the watchdog has ended; return the record."""
        until(lambda: self.files.tripped() is not None, within_s, "the lane tripped")
        until(lambda: not self.runs(self.server) and not self.runs(self.sidecar), SOON_S, "the lane is gone")
        until(lambda: not lives(self.status()), SOON_S, "the watchdog has ended")
        assert not self.view().armed
        record = self.files.tripped()
        assert record is not None
        return record

    def quiet(self, seconds: float) -> None:
        """Let it run for a while in which nothing may happen: look all the time, and fail as soon as it does."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.files.tripped() is None, self.files.tripped()
            assert self.view().armed, self.view()
            time.sleep(0.02)

    def close(self) -> None:
        """Kill the watchdog's processes and the lane, whatever state they are in."""
        with contextlib.suppress(LaneError):
            status = self.files.status()
            for process in (status.supervisor, status.watcher) if status is not None else ():
                if process is not None and alive(process):
                    send(process, KILL)
        for ref in (self.server, self.sidecar):
            self.site.engine.remove(ref)
        if self.counters_fd >= 0:
            os.close(self.counters_fd)
        self.path.unlink(missing_ok=True)

    def _create(self, role: str) -> str:
        host: dict[str, Any] = {"NetworkMode": "host", "IpcMode": "host"}
        if self.site.engine.info().kind != "local":
            host["Binds"] = python_binds()
        body = {
            "Image": self.station.site.images["engine"],
            "Entrypoint": [sys.executable, "-I", "-S", "-u", SCRIPT],
            "Cmd": [role, str(self.path)],
            "HostConfig": host,
        }
        return self.site.engine.create(CreateArgs(f"{self.site.prefix}{self.name}-{role}", body))

    def _await_line(self, ref: str, line: str) -> None:
        log = self.site.engine.logs(ref)
        try:
            assert next(log) == line
        finally:
            log.close()


@contextlib.contextmanager
def counter_lane(site: RealSite, **how: Any) -> Iterator[CounterLane]:
    """Give a lane on the site's engine; its processes and its file are gone afterwards."""
    lane = CounterLane(site, **how)
    try:
        yield lane
    finally:
        lane.close()
