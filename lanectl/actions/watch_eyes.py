"""What the engine says about the watched containers, asked slowly and in a thread of its own.

A daemon that hangs costs this view, never a look at the counters.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from lanectl.core.container import Container, Status
from lanectl.errors import LaneError
from lanectl.ports import Clock, ContainerEngine
from lanectl.store import process
from lanectl.store.process import ProcessId
from lanectl.store.watch import WatchedService

# Needed for what no pidfd shows: a sidecar that is paused while nothing waits for it (else the stall is first), and
# the first process of a server that was started meanwhile. An ask costs us 1.5 ms, on a busy machine 4: two containers
# every two seconds are 0.15 to 0.4 % of a core.
ASK_EVERY_S = 2.0
STOPPED = ("T", "t")  # proc(5): stopped by a signal, or by a debugger


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer. `asked_at`: monotonic seconds at which it was asked. `container` None: there is none.

    `first`: its first process, where it can be seen on this machine. `paused`: its processes do not run on, because
    the engine paused it or somebody stopped the first. `error`: the engine did not say.
    """

    asked_at: float
    container: Container | None = None
    first: ProcessId | None = None
    paused: bool = False
    error: str = ""

    @property
    def runs(self) -> bool:
        return self.container is not None and self.container.running


def first_process(engine: ContainerEngine, container: Container) -> ProcessId | None:
    """Given a running container, return its first process; None where it is not on this machine, or not to be seen.

    The engine's pid alone proves nothing (it may be another machine's): it must be among the container's own here.
    """
    if container.pid is None:
        return None
    try:
        ours = engine.pids(container.id)
    except LaneError:
        return None
    return process.identify(container.pid) if ours and container.pid in ours else None


class EngineEyes:
    """Asks the engine about each service, again and again, until the process ends."""

    def __init__(self, engine: ContainerEngine, clock: Clock, services: Sequence[WatchedService]) -> None:
        self._engine = engine
        self._clock = clock
        self._services = tuple(services)
        self.rounds = 0  # how often all services were asked about
        self._seen: dict[str, Seen] = {}
        self._wanted = threading.Event()
        self._round = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ask the engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look_now(self) -> None:
        """Ask soon, without waiting for the answer."""
        self._wanted.set()

    def seen(self, name: str) -> Seen | None:
        """Return the last answer about a service; None before the first."""
        return self._seen.get(name)

    def wait_for_all(self, within_s: float) -> None:
        """Wait until every service was asked about once, or the time is over."""
        with self._round:
            self._round.wait_for(lambda: self.rounds > 0, within_s)

    def _run(self) -> None:
        while True:
            self._wanted.clear()
            for service in self._services:
                self._seen[service.name] = self._ask(service)
            with self._round:
                self.rounds += 1
                self._round.notify_all()
            self._wanted.wait(ASK_EVERY_S)

    def _ask(self, service: WatchedService) -> Seen:
        at = self._clock.monotonic()
        try:
            container = self._engine.inspect(service.container_id)
        except Exception as error:  # whatever it is, this thread must go on asking
            return Seen(at, error=str(error) or type(error).__name__)
        if container is None or not container.running:
            return Seen(at, container)
        last = self._seen.get(service.name)
        known = last.first if last is not None and last.first is not None and last.first.pid == container.pid else None
        first = known or first_process(self._engine, container)
        return Seen(at, container, first, container.status is Status.PAUSED or _stopped(first))


def _stopped(first: ProcessId | None) -> bool:
    found = process.stat(first.pid) if first is not None else None
    return found is not None and found.state in STOPPED
