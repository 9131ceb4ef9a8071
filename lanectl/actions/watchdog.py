"""The owner's side of a watchdog: arm it, tighten it, let it stand by, end it, and read what it says.

Whoever starts and stops lanes (the holder of the site's lock) is the owner. A watchdog is found by the id of its lane's
server container, so that the next owner finds what the last one armed.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lanectl.actions.station import Station
from lanectl.actions.trip import RESERVE, RESERVED_BYTES
from lanectl.actions.watch_eyes import first_process
from lanectl.actions.watch_life import life_of, lives
from lanectl.actions.watch_post import WATCHING, job_command
from lanectl.actions.watch_view import WatchView, view
from lanectl.core import lane as lanes
from lanectl.core.watch import Mode
from lanectl.errors import ExitCode, LaneError
from lanectl.store.files import StoreError, ensure_dir, reserve
from lanectl.store.layout import StateDir
from lanectl.store.watch import Order, Status, TripRecord, WatchedService, WatchFiles, WatchSpec, Wish, watch_key

# The job starts in under a second and asks the engine about every container; a daemon that is busy takes seconds.
ARMED_WITHIN_S = 30.0
# A watcher takes at most 5 s for an order; one that dies meanwhile is replaced within 2 s and reads the order again.
ACK_WITHIN_S = 10.0
LOOK_EVERY_S = 0.005
ENDS_WITHIN_S = 5.0  # from its last word to the end of its processes
# One whose files were lost says how it is twice a second; the rest is for a busy machine.
SAYS_WITHIN_S = 5.0
ENFORCE = "enforce"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Guarded:
    """What a watchdog is to watch: a lane by its label, its policy, its containers.

    `services`: (name, container id) in start order; `server`: the name of the one that clients talk to.
    """

    lane: str
    policy: lanes.Watchdog
    services: tuple[tuple[str, str], ...]
    server: str
    swap: str | None = None
    fallback: str | None = None

    @property
    def server_id(self) -> str:
        return dict(self.services)[self.server]


class Watchdog:
    """The watchdog of one lane. Every method is "ensure": asking for what is so already is fine."""

    def __init__(self, station: Station, guarded: Guarded) -> None:
        self._station = station
        self._guarded = guarded
        self._key = watch_key(guarded.server_id)
        self._files = WatchFiles(station.state.watch / self._key)

    @staticmethod
    def read(state: StateDir, server_id: str, lane: str = "") -> WatchView | None:
        """Return what is seen of the watchdog of this server container; None when it never had one."""
        return view(WatchFiles(state.watch / watch_key(server_id)), lane)

    def view(self) -> WatchView | None:
        """Return what is seen of it; None when there never was one."""
        return view(self._files, self._guarded.lane)

    @staticmethod
    def tripped(state: StateDir, server_id: str) -> TripRecord | None:
        """Return why the lane of this server container was killed; None when it was not. Raise `LaneError`."""
        return WatchFiles(state.watch / watch_key(server_id)).tripped()

    @staticmethod
    def clear_trip(state: StateDir, server_id: str) -> None:
        """A person clears a trip: the lane may be started and armed again. Raise `LaneError`."""
        WatchFiles(state.watch / watch_key(server_id)).clear()

    def arm(self) -> None:
        """Start watching in boot mode; the counters' file must be there, so the sidecar serves already.

        One that watches these very processes is kept, whatever became of its files: they are written again. It goes
        back to boot mode if it stands by. Raise `LaneError` saying why it cannot be armed: exit 8 while a trip of this
        lane is not cleared, else 3.
        """
        services = self._services()
        self._refuse_tripped()
        status = self._living()
        if status is not None and _same(self._watching(status), services):
            self._mend(services)
            if status.mode is Mode.STANDBY:
                self._give(Wish.BOOT, services)
            return
        if status is not None:
            self._finish(Wish.REPLACED)
        self._start(services)

    def tighten(self) -> None:
        """From now on the spec's stall bound holds. Raise `LaneError`: exit 8 when it tripped, else 3."""
        self._give(Wish.SERVING, self._services())

    def stand_by(self) -> None:
        """The lane is about to be stopped: only timeouts trip from now on. One that does not live is left so.

        Raise `LaneError` as `tighten`.
        """
        status = self._living()
        if status is not None:
            self._give(Wish.STANDBY, self._watching(status))

    def end(self) -> None:
        """The lane is proven gone: nothing is left to watch. One that has ended is fine.

        Raise `LaneError` (exit 3) when a container may still run: a lane is watched until it is gone.
        """
        if self._living() is not None:
            self._finish(Wish.END)

    def _finish(self, wish: Wish) -> None:
        try:
            status = self._living()
            if status is not None:
                self._give(wish, self._watching(status))
        except _Ended:
            pass
        deadline = self._station.clock.monotonic() + ENDS_WITHIN_S
        while self._living() is not None:
            if self._station.clock.monotonic() > deadline:
                raise self._refusal(f"it is still there {ENDS_WITHIN_S:g} s after its last word")
            self._station.clock.sleep(LOOK_EVERY_S)

    def _start(self, services: tuple[WatchedService, ...]) -> None:
        files = self._files
        ensure_dir(files.folder)
        files.clear()
        reserve(files.folder / RESERVE, RESERVED_BYTES)
        files.write_spec(self._spec(services))
        files.write_order(Order(1, Wish.BOOT, services))
        told, tell = os.pipe()
        os.set_inheritable(tell, True)
        try:
            command = job_command(self._station.state, self._key, "--ready-fd", str(tell))
            name = f"lanectl-watch-{self._key}"
            self._station.jobs.start(command, name=name, keep_fds=(tell,), log_path=str(files.log))
        finally:
            os.close(tell)
        try:
            self._await_armed(told)
        finally:
            os.close(told)

    def _spec(self, services: tuple[WatchedService, ...]) -> WatchSpec:
        guarded = self._guarded
        return WatchSpec(
            lane=guarded.lane,
            counters=guarded.policy.counters,
            stall_s=guarded.policy.stall_s,
            enforce=guarded.policy.mode == ENFORCE,
            services=services,
            engine=self._station.site.engine,
            swap=guarded.swap,
            fallback=guarded.fallback,
        )

    def _mend(self, services: tuple[WatchedService, ...]) -> None:
        """Write again what was lost of the files of one that lives; the next order replaces a lost one."""
        files = self._files
        if _readable(files.spec) is None:
            reserve(files.folder / RESERVE, RESERVED_BYTES)
            files.write_spec(self._spec(services))
        if _readable(files.observed) is None:
            files.drop_records()  # of which there is no trip: it lives

    def _await_armed(self, told: int) -> None:
        readable, _, _ = select.select([told], [], [], ARMED_WITHIN_S)
        said = os.read(told, select.PIPE_BUF) if readable else b""
        if said == WATCHING:
            return
        silent = self._last_words() if readable else f"it did not start within {ARMED_WITHIN_S:g} s"
        raise self._refusal(said.decode(errors="replace") or silent)

    def _last_words(self) -> str:
        lines = self._files.log.read_text(errors="replace").strip().splitlines() if self._files.log.exists() else []
        return f"it ended before it watched: {lines[-1] if lines else 'it said nothing'}"

    def _give(self, wish: Wish, services: tuple[WatchedService, ...]) -> None:
        """Give an order and wait until it is followed. Raise `_Ended` when there is nobody any more to follow it."""
        order, status = _readable(self._files.order), self._living()
        if order is None and status is None:
            raise self._refusal("it was never armed")
        seq = max(order.seq if order is not None else 0, status.acked if status is not None else 0) + 1
        self._files.write_order(Order(seq, wish, services))
        deadline = self._station.clock.monotonic() + ACK_WITHIN_S
        while self._station.clock.monotonic() < deadline:
            status = _readable(self._files.status)
            if status is not None and status.acked >= seq:
                if status.refused:
                    raise self._refusal(status.refused)
                return
            self._refuse_tripped()
            if self._living() is None:
                raise _Ended(self._lost(), None, ExitCode.REFUSED)
            self._station.clock.sleep(LOOK_EVERY_S)
        raise self._refusal(f"it does not answer: {wish} was asked for {ACK_WITHIN_S:g} s ago")

    def _refuse_tripped(self) -> None:
        record = self._files.tripped()
        if record is not None:
            raise LaneError(
                f"the watchdog of {record.lane} tripped at {record.at}: {record.rule}: {record.reason}",
                "find out why; then `lanectl restart` clears it, or `lanectl rollback` goes back",
                ExitCode.TRIPPED,
            )

    def _refusal(self, why: str) -> LaneError:
        return LaneError(f"the watchdog of {self._guarded.lane}: {why}", f"see {self._files.log}", ExitCode.REFUSED)

    def _lost(self) -> str:
        status = _readable(self._files.status)
        ended = status.ended if status is not None else ""
        return f"the watchdog of {self._guarded.lane} has ended: {ended or 'its processes are gone'}"

    def _watching(self, status: Status) -> tuple[WatchedService, ...]:
        """Return what a watchdog that lives watches: as it was ordered, else as it says."""
        order = _readable(self._files.order)
        return order.services if order is not None else status.watching

    def _living(self) -> Status | None:
        """Return the status of the watchdog that lives now, or comes back at once; None when there is none.

        One whose status was lost says it again. Raise `LaneError` (exit 3) when it lives and does not.
        """
        deadline = self._station.clock.monotonic() + SAYS_WITHIN_S
        while True:
            status = _readable(self._files.status)
            if status is not None and lives(status):
                return status
            life = life_of(self._files)
            if life is None:
                return None
            if self._station.clock.monotonic() > deadline:
                pids = ", ".join(str(one.pid) for one in life.processes)
                raise self._refusal(f"it lives (pid {pids}) and its status cannot be read")
            ensure_dir(self._files.folder)
            self._station.clock.sleep(LOOK_EVERY_S)

    def _services(self) -> tuple[WatchedService, ...]:
        """Return the lane's services as they are now, in kill order: the server, then the rest, last started first."""
        ids = dict(self._guarded.services)
        rest = [name for name, _ in reversed(self._guarded.services) if name != self._guarded.server]
        return tuple(self._service(name, ids[name]) for name in (self._guarded.server, *rest))

    def _service(self, name: str, container_id: str) -> WatchedService:
        container = self._station.engine.inspect(container_id)
        if container is None:
            raise self._refusal(f"there is no container of {name}")
        return WatchedService(name, container_id, first_process(self._station.engine, container))


class _Ended(LaneError):
    """There is no watchdog any more."""


def _same(watched: tuple[WatchedService, ...], now: tuple[WatchedService, ...]) -> bool:
    """True when no process that is watched has been replaced since; one that has started meanwhile is fine."""
    firsts = {service.container_id: service.first for service in now}
    return bool(watched) and all(service.first in (None, firsts.get(service.container_id)) for service in watched)


def _readable(read: Callable[[], T | None]) -> T | None:
    """Return what a file holds; a damaged one is as good as none: it is written again."""
    try:
        return read()
    except StoreError:
        return None
