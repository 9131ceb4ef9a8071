"""One machine in memory: containers whose programs follow a script, their ports and GPU memory, time as a test wills.

The world outlives whoever works on it: a test can let a swap die at any call and look at, or go on with, what is left.
`FakeEngine` (fake_engine.py) is the container engine of such a machine.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from lanectl.core.container import Image, Status
from lanectl.core.lane import Restart
from lanectl.ports import Clock

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)  # wall time at monotonic 0
FIRST_BACK_OFF_S = 0.1  # Docker's: 100 ms before the first restart, then twice as long each time
KILLED = 137  # 128 + SIGKILL
STDOUT = 1
READERS_WITHIN_S = 0.05  # of real time: how long a sleep waits for log readers to take what has become due


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self._now = 0.0
        self.after_sleep: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> str:
        return moment(self._now)[:-4] + "Z"  # microseconds to milliseconds

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        for look in self.after_sleep:
            look()


@dataclass(frozen=True)
class Line:
    """Bytes that a program writes, so long after its start."""

    after_s: float
    data: bytes
    stream: int = STDOUT


@dataclass(frozen=True)
class Program:
    """What a container's processes do once started. Defaults: run silently until told to end, and then end at once.

    `term_code` None: the stop signal is ignored. `dies` False: not even SIGKILL ends it (a ghost). `start_error`: it
    cannot be started, in the engine's words. `port` None with a `model`: the port is the command's `--port N`.
    `hangs`: everything answers but completions. `health_status`: what the health path answers.
    """

    lines: tuple[Line, ...] = ()
    exits_after_s: float | None = None
    exit_code: int = 0
    term_code: int | None = 0
    term_takes_s: float = 0.0
    dies: bool = True
    start_error: str | None = None
    children: int = 0
    port: int | None = None
    listens_after_s: float = 0.0
    model: str | None = None
    max_model_len: int | None = None
    health_status: int = 200
    hangs: bool = False
    gpu_mib: int = 0
    gpu_free_after_s: float = 0.0


@dataclass(frozen=True)
class Listener:
    """Who listens on a port, and how it answers."""

    port: int
    pids: frozenset[int]
    name: str
    program: Program
    frozen: bool = False


@dataclass(frozen=True)
class Written:
    run: int
    data: bytes
    stream: int


@dataclass
class FakeContainer:
    """A container of the world. `due` is what its program will do next: (time, act) in order of time."""

    id: str
    name: str
    body: Mapping[str, Any]
    image_id: str
    restart: Restart
    created_at: float
    born_name: str
    status: Status = Status.CREATED
    program: Program = field(default_factory=Program)
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    log: list[Written] = field(default_factory=list)
    run: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    restart_count: int = 0
    pids: frozenset[int] = frozenset()
    pid: int | None = None
    listening: int | None = None
    frozen_at: float | None = None

    @property
    def running(self) -> bool:
        return self.status in (Status.RUNNING, Status.PAUSED)

    @property
    def devices(self) -> tuple[str, ...]:
        requests = self.body.get("HostConfig", {}).get("DeviceRequests") or ()
        return tuple(name for request in requests for name in request.get("DeviceIDs") or ())


class World:
    """Containers, images and devices of one machine, as functions of the clock.

    `programs`: what a container runs, by the name it was created with, else by a word of its command, else by its image
    id; else the default.
    `strangers`: listeners that are no containers. Every method must be called with `changed` held, except `look`.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.changed = threading.Condition(threading.RLock())
        self.images: dict[str, Image] = {}
        self.programs: dict[str, Program] = {}
        self.cdi_devices: tuple[str, ...] = ()
        self.containers: dict[str, FakeContainer] = {}
        self.strangers: list[Listener] = []
        self.readers: list[Reader] = []
        self._memory: list[tuple[float, str, int]] = []  # (until, device, MiB) that a dead process still holds
        self._numbers = itertools.count(1)
        if isinstance(clock, FakeClock):
            clock.after_sleep.append(self._time_has_passed)

    def look(self) -> None:
        """Let everything happen that is due by now, in order of time."""
        with self.changed:
            while (act := self._next_act()) is not None:
                act()
            self.changed.notify_all()

    def find(self, ref: str) -> FakeContainer | None:
        if ref in self.containers:
            return self.containers[ref]
        return next((container for container in self.containers.values() if ref and container.name == ref), None)

    def add_image(self, name: str, program: Program | None = None) -> Image:
        """Put an image there, known as `name:latest` and as `name@sha256:…`; its containers run `program`."""
        number = f"{next(self._numbers):064x}"
        image = Image(f"sha256:{number}", (f"{name}@sha256:{number[::-1]}",), (f"{name}:latest",))
        self.images[image.id] = image
        if program is not None:
            self.programs[image.id] = program
        return image

    def add(self, name: str, body: Mapping[str, Any], image: Image, restart: Restart) -> FakeContainer:
        container_id = f"{next(self._numbers):x}".rjust(12, "f").ljust(64, "0")
        made = FakeContainer(container_id, name, body, image.id, restart, self.clock.monotonic(), name)
        self.containers[container_id] = made
        return made

    def start(self, container: FakeContainer) -> None:
        """Start a run: plan what its program does from now on. What cannot be started does not run."""
        now = self.clock.monotonic()
        program = container.program = self.program_of(container) or Program()
        if program.start_error is not None:
            container.status, container.error, container.due = Status.EXITED, program.start_error, []
            return
        container.run += 1
        container.status, container.started_at, container.exit_code = Status.RUNNING, now, None
        container.oom_killed, container.error = False, ""
        numbers = [next(self._numbers) for _ in range(1 + program.children)]
        container.pid, container.pids = numbers[0], frozenset(numbers)
        plan: list[tuple[float, Callable[[], None]]] = [
            (now + line.after_s, lambda line=line: self._write(container, line))  # type: ignore[misc]
            for line in program.lines
        ]
        port = program.port if program.port is not None else _port_argument(container.body)
        if port is not None and (program.port is not None or program.model is not None):
            plan.append((now + program.listens_after_s, lambda: self._listen(container, port)))
        if program.exits_after_s is not None:
            plan.append((now + program.exits_after_s, lambda: self.end(container, program.exit_code)))
        container.due = sorted(plan, key=lambda item: item[0])
        self.look()

    def program_of(self, container: FakeContainer) -> Program | None:
        """Return what the container will run at its next start, None where nothing was said."""
        keys = (container.born_name, *(container.body.get("Cmd") or ()), container.image_id)
        return next((self.programs[key] for key in keys if key in self.programs), None)

    def end(self, container: FakeContainer, exit_code: int, *, by_hand: bool = False) -> None:
        """End a run. `by_hand` (a stop or kill): its restart policy does not start it again."""
        now = self.clock.monotonic()
        if container.program.gpu_mib:
            until = now + container.program.gpu_free_after_s
            self._memory += [(until, device, container.program.gpu_mib) for device in container.devices]
        container.status, container.exit_code, container.finished_at = Status.EXITED, exit_code, now
        container.pid, container.pids, container.listening, container.frozen_at = None, frozenset(), None, None
        container.due = []
        if not by_hand and self._wants_restart(container):
            pause = FIRST_BACK_OFF_S * 2**container.restart_count
            container.status = Status.RESTARTING
            container.due = [(now + pause, lambda: self._again(container))]
        self.changed.notify_all()

    def freeze(self, container: FakeContainer) -> None:
        """Pause a container: nothing of it happens until `thaw`."""
        container.status, container.frozen_at = Status.PAUSED, self.clock.monotonic()

    def thaw(self, container: FakeContainer) -> None:
        if container.frozen_at is not None:
            lost = self.clock.monotonic() - container.frozen_at
            container.due = [(at + lost, act) for at, act in container.due]
            container.status, container.frozen_at = Status.RUNNING, None

    def restart_machine(self) -> None:
        """End every container and do what the engine does when it comes up: start those whose policy says so."""
        with self.changed:
            ran = [container for container in self.containers.values() if container.running]
            for container in ran:
                self.end(container, KILLED, by_hand=True)
            for container in self.containers.values():
                policy = container.restart.name
                if policy == "always" or (policy == "unless-stopped" and container in ran):
                    self.start(container)

    def listeners(self, port: int) -> tuple[Listener, ...]:
        """Return who listens on a port now."""
        self.look()
        with self.changed:
            ours = (
                Listener(port, container.pids, container.name, container.program, container.frozen_at is not None)
                for container in self.containers.values()
                if container.listening == port
            )
            return (*(stranger for stranger in self.strangers if stranger.port == port), *ours)

    def gpu_mib(self, device: str) -> int:
        """Return what the processes on a device hold now, in MiB, the dead ones' part that is not freed yet too."""
        self.look()
        with self.changed:
            now = self.clock.monotonic()
            held = sum(c.program.gpu_mib for c in self.containers.values() if c.running and device in c.devices)
            return held + sum(mib for until, name, mib in self._memory if name == device and until > now)

    def strand(self, device: str, mib: int, for_s: float) -> None:
        """Have memory of a device in use for a while, though no process has it."""
        self._memory.append((self.clock.monotonic() + for_s, device, mib))

    def free_memory(self) -> None:
        """Give back what no living process has."""
        self._memory.clear()

    def _next_act(self) -> Callable[[], None] | None:
        now = self.clock.monotonic()
        waiting = [c for c in self.containers.values() if c.due and c.frozen_at is None and c.due[0][0] <= now]
        first = min(waiting, key=lambda container: container.due[0][0], default=None)
        return first.due.pop(0)[1] if first else None

    def _write(self, container: FakeContainer, line: Line) -> None:
        container.log.append(Written(container.run, line.data, line.stream))
        for reader in self.readers:
            reader.caught_up = reader.caught_up and (reader.container is not container or reader.left)

    def _listen(self, container: FakeContainer, port: int) -> None:
        if self.listeners(port):
            self._write(container, Line(0, f"[Errno 98] address already in use: {port}\n".encode()))
            self.end(container, 1)
        else:
            container.listening = port

    def _wants_restart(self, container: FakeContainer) -> bool:
        policy = container.restart
        if policy.name == "on-failure":
            allowed = policy.max_retries or container.restart_count + 1
            return container.exit_code != 0 and container.restart_count < allowed
        return policy.name in ("always", "unless-stopped")

    def _again(self, container: FakeContainer) -> None:
        container.restart_count += 1
        self.start(container)

    def _time_has_passed(self) -> None:
        """After a sleep in fake time: let what is due happen, and log readers in other threads take what it wrote."""
        self.look()
        me = threading.get_ident()

        def behind() -> list[Reader]:
            return [one for one in self.readers if one.thread != me and not one.caught_up and not one.left]

        with self.changed:
            if not self.changed.wait_for(lambda: not behind(), READERS_WITHIN_S):
                for reader in behind():
                    reader.left = True


@dataclass(eq=False)
class Reader:
    """Who reads a log. `caught_up`: it has taken all and waits for more. `left`: it does not read on; time goes on."""

    container: FakeContainer
    thread: int | None = None
    caught_up: bool = True
    left: bool = False


def moment(at: float | None) -> str:
    """Return a time of the world in the engine's text form; "" for never."""
    if at is None:
        return ""
    return (EPOCH + timedelta(seconds=at)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _port_argument(body: Mapping[str, Any]) -> int | None:
    words = [*(body.get("Entrypoint") or ()), *(body.get("Cmd") or ())]
    return int(words[words.index("--port") + 1]) if "--port" in words[:-1] else None
