"""The container engine of a world in memory (fake_world.py), with faults that a test orders for single calls."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lanectl.core.container import Container, CreateArgs, EngineInfo, Image, Status, Stopped
from lanectl.core.lane import Restart
from lanectl.engine.lines import STDERR, STDOUT, LineSplitter
from lanectl.errors import DeviceUnknown, EngineError, EngineUnknown, NameTaken, NotThere, Problem, Refused
from tests.support.fake_world import KILLED, FakeContainer, Reader, World, moment

ENGINE_ID = "fake-engine"
KILL_LIMIT_S = 60.0  # as the real one: how long a kill waits for an exit that does not come
REAL_POLL_S = 0.01  # of real time: a world on a real clock tells nobody when something falls due


@dataclass
class Fault:
    """What goes wrong with a call: `error` is raised instead of it (`after`: once it has happened, its answer lost).

    `call` is the method's name, `ref` its container (None: any). The first `skip` calls that fit pass, then `times`
    calls fail. Any exception will do: a BaseException of the test's own is how lanectl "dies" there.
    """

    call: str
    error: BaseException
    after: bool = False
    ref: str | None = None
    skip: int = 0
    times: int = 1


class FakeEngine:
    """See `ContainerEngine`. `calls` lists every call as (method, ref), `faults` holds those still to come."""

    def __init__(self, world: World, pinned: str | None = None) -> None:
        self.world = world
        self.calls: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self._pinned = pinned

    def info(self) -> EngineInfo:
        with self._call("info"):
            if self._pinned not in (None, ENGINE_ID):
                raise Refused([Problem("station.yaml", f"the engine is {ENGINE_ID}", "engine.daemon_id")])
            return EngineInfo("fake", ENGINE_ID, "1", "memory", self.world.cdi_devices)

    def image(self, ref: str) -> Image | None:
        with self._call("image", ref):
            return self._image(ref)

    def keep_image(self, image_id: str, tag: str) -> None:
        with self._call("keep_image", image_id):
            image = self._image(image_id)
            if image is None:
                raise NotThere(f"no image {image_id}")
            tags = (*(known for known in image.tags if known != tag), tag)
            self.world.images[image.id] = Image(image.id, image.digests, tags)

    def drop_image_tag(self, tag: str) -> None:
        with self._call("drop_image_tag", tag):
            for image in tuple(self.world.images.values()):
                left = tuple(known for known in image.tags if known != tag)
                self.world.images[image.id] = Image(image.id, image.digests, left)
                if left != image.tags and not left and not image.digests and not self._used(image.id):
                    del self.world.images[image.id]

    def create(self, args: CreateArgs) -> str:
        with self._call("create", args.name):
            image = self._image(args.body["Image"])
            if image is None:
                raise NotThere(f"no image {args.body['Image']}")
            if self.world.find(args.name) is not None:
                raise NameTaken(f"the name {args.name} is in use")
            policy = args.body.get("HostConfig", {}).get("RestartPolicy") or {}
            restart = Restart(policy.get("Name") or "no", policy.get("MaximumRetryCount") or 0)
            return self.world.add(args.name, args.body, image, restart).id

    def start(self, ref: str) -> None:
        with self._call("start", ref):
            container = self._get(ref)
            if container.status is Status.PAUSED:
                raise EngineError("cannot start a paused container")
            if container.running:
                return
            unknown = self.cdi_problem(container.image_id, container.devices)
            if unknown is not None:
                container.error = unknown
                raise DeviceUnknown(unknown)
            program = self.world.program_of(container)
            if program is not None and program.start_error is not None:
                container.error = program.start_error
                raise EngineError(program.start_error)
            self.world.start(container)

    def stop(self, ref: str, grace_s: float) -> Stopped:
        with self._call("stop", ref):
            began = self.world.clock.monotonic()
            container = self._get(ref)
            if container.status is Status.RESTARTING:
                self.world.end(container, container.exit_code or 0, by_hand=True)
            if not container.running:
                return Stopped("already", 0.0, container.exit_code)
            self.world.thaw(container)
            program = container.program
            obeys = program.term_code is not None and program.term_takes_s <= grace_s
            self._sleep(program.term_takes_s if obeys else grace_s)
            self.world.look()
            how = "term" if obeys or not container.running else "kill"
            if container.running and obeys:
                self.world.end(container, program.term_code or 0, by_hand=True)
            elif container.running:
                self._kill(container)
            return Stopped(how, self.world.clock.monotonic() - began, container.exit_code)

    def kill(self, ref: str) -> None:
        with self._call("kill", ref):
            self._kill(self._get(ref))

    def rename(self, ref: str, name: str) -> None:
        with self._call("rename", ref):
            container = self._get(ref)
            owner = self.world.find(name)
            if owner is not None and owner is not container:
                raise NameTaken(f"the name {name} is in use")
            container.name = name

    def set_restart(self, ref: str, policy: Restart) -> None:
        with self._call("set_restart", ref):
            self._get(ref).restart = policy

    def remove(self, ref: str) -> None:
        with self._call("remove", ref):
            container = self.world.find(ref)
            if container is None:
                return
            self._kill(container)
            del self.world.containers[container.id]

    def inspect(self, ref: str) -> Container | None:
        with self._call("inspect", ref):
            container = self.world.find(ref)
            return None if container is None else _seen(container)

    def containers(self, labels: Mapping[str, str] | None = None) -> tuple[Container, ...]:
        with self._call("containers"):
            seen = map(_seen, self.world.containers.values())
            return tuple(container for container in seen if _carries(container.labels, labels or {}))

    def recreate_args(self, ref: str) -> CreateArgs:
        with self._call("recreate_args", ref):
            container = self._get(ref)
            policy = {"Name": container.restart.name, "MaximumRetryCount": container.restart.max_retries}
            host = {**container.body.get("HostConfig", {}), "RestartPolicy": policy}
            return CreateArgs(container.name, {**container.body, "Image": container.image_id, "HostConfig": host})

    def logs(self, ref: str, *, since_start: bool = True, follow: bool = True) -> FakeLog:
        with self._call("logs", ref):
            return FakeLog(self.world, self._get(ref), since_start=since_start, follow=follow)

    def pids(self, ref: str) -> frozenset[int] | None:
        with self._call("pids", ref):
            return self._get(ref).pids

    def cdi_problem(self, image_id: str, devices: Sequence[str]) -> str | None:
        with self._call("cdi_problem", image_id):
            unknown = [device for device in devices if device not in self.world.cdi_devices]
            return f"unresolvable CDI devices {', '.join(unknown)}" if unknown else None

    @contextmanager
    def _call(self, name: str, ref: str = "") -> Iterator[None]:
        with self.world.changed:
            self.calls.append((name, ref))
            self._strike(name, ref, after=False)
            self.world.look()
            yield
            self._strike(name, ref, after=True)

    def _strike(self, name: str, ref: str, *, after: bool) -> None:
        for fault in self.faults:
            if fault.call != name or fault.after != after or fault.times == 0 or fault.ref not in (None, ref):
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.times -= 1
            raise fault.error

    def _get(self, ref: str) -> FakeContainer:
        container = self.world.find(ref)
        if container is None:
            raise NotThere(f"no container {ref}")
        return container

    def _image(self, ref: str) -> Image | None:
        return next((i for i in self.world.images.values() if ref in (i.id, *i.digests, *i.tags)), None)

    def _used(self, image_id: str) -> bool:
        return any(container.image_id == image_id for container in self.world.containers.values())

    def _sleep(self, seconds: float) -> None:
        """Let time pass inside a call; others may use the world meanwhile."""
        self.world.changed.release()
        try:
            self.world.clock.sleep(seconds)
        finally:
            self.world.changed.acquire()

    def _kill(self, container: FakeContainer) -> None:
        if container.status is Status.RESTARTING or (container.running and container.program.dies):
            self.world.end(container, KILLED, by_hand=True)
        elif container.running:
            self._sleep(KILL_LIMIT_S)
            raise EngineUnknown(f"{container.name} still runs after SIGKILL")


class FakeLog:
    """See `LogStream`. It ends, as a real one does, when the run that it follows has ended."""

    def __init__(self, world: World, container: FakeContainer, *, since_start: bool, follow: bool) -> None:
        self._world = world
        self._container = container
        self._run = container.run
        self._since_start = since_start
        self._follow = follow
        self._at = 0
        self._lines: deque[str] = deque()
        self._splitters = {STDOUT: LineSplitter(), STDERR: LineSplitter()}
        self._closed = False
        self._ended = False
        self._reader = Reader(container)
        world.readers.append(self._reader)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        with self._world.changed:
            self._reader.thread, self._reader.left = threading.get_ident(), False
            while not self._closed:
                self._world.look()
                self._take()
                if self._lines:
                    self._reader.caught_up = False
                    return self._lines.popleft()
                if self._ended:
                    break
                self._reader.caught_up = True
                self._world.changed.notify_all()
                self._world.changed.wait(REAL_POLL_S)
            self._gone()
            raise StopIteration

    def close(self) -> None:
        with self._world.changed:
            self._closed = True
            self._gone()

    def _gone(self) -> None:
        """Nobody waits any more for what this reader has not taken."""
        if self._reader in self._world.readers:
            self._world.readers.remove(self._reader)
        self._world.changed.notify_all()

    def _take(self) -> None:
        """Take what was written since the last look, and see whether more can come."""
        over = not self._container.running or self._container.run != self._run or not self._follow
        for written in self._container.log[self._at :]:
            self._at += 1
            if written.run <= self._run and (written.run == self._run or not self._since_start):
                self._lines.extend(self._splitters[written.stream].feed(written.data))
        if over and not self._ended:
            self._ended = True
            self._lines.extend(self._splitters[STDOUT].end() + self._splitters[STDERR].end())


def _carries(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(key in labels and value in ("", labels[key]) for key, value in wanted.items())


def _seen(container: FakeContainer) -> Container:
    body: Mapping[str, Any] = container.body
    return Container(
        id=container.id,
        name=container.name,
        image_id=container.image_id,
        image_ref=body["Image"],
        status=container.status,
        exit_code=container.exit_code,
        oom_killed=container.oom_killed,
        error=container.error,
        created_at=moment(container.created_at),
        started_at=moment(container.started_at),
        finished_at=moment(container.finished_at),
        restart_count=container.restart_count,
        restart=container.restart,
        labels=dict(body.get("Labels") or {}),
        pid=container.pid,
        devices=container.devices,
        network_mode=body.get("HostConfig", {}).get("NetworkMode") or "",
    )
