"""The supervisor: it forks the watcher, and another one at once when that dies or hangs. Else it kills the lane.

It has everything imported and one thread, so a fork takes milliseconds and needs neither disk nor the site's files. It
ends when the watch does. When it dies itself, its watcher starts another supervisor, which takes that watcher over.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import traceback
from collections import deque
from typing import NoReturn

from lanectl.actions.trip import follow_up, observe, trip, unfinished
from lanectl.actions.watch import Watcher
from lanectl.actions.watch_post import WATCHING, Post
from lanectl.actions.watch_priority import take_priority
from lanectl.actions.watched import Watched
from lanectl.core.watch import Known, Mode, Rule, Trip
from lanectl.errors import ExitCode, LaneError
from lanectl.probes.first_process import FirstProcess
from lanectl.store.process import ProcessId, identify, stat, this_process

# A first look comes 10 to 50 ms after the fork. With the wait for a dead or hung watcher, a lane is without looks for
# about a second at the most; a stall's clock goes on meanwhile.
READY_WITHIN_S = 1.0
FIRST_READY_WITHIN_S = 20.0  # it also asks the engine about every container
HUNG_AFTER_S = 1.0  # 22 looks
# One that wants to run and may not is not helped by another that may not either: the machine has too much to do.
STARVED_AFTER_S = 10.0
RUNNABLE = "R"  # proc(5)
LOOK_EVERY_S = 0.5
# A watcher that dies again and again does not watch: five times in a minute is no accident.
MOST_DEATHS, WITHIN_S = 5, 60.0
TRIP_WITHIN_S = 120.0  # the engine's own limit for a kill is a minute
NOT_READY = "the watcher did not get ready"


class Supervisor:
    """Supervises the watcher of one post, from its fork to its end."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._deaths: deque[float] = deque(maxlen=MOST_DEATHS)

    def run(self, ready_fd: int) -> ExitCode:
        """Fork a watcher, write to `ready_fd` that it watches or why it does not, and supervise it."""
        take_priority()
        gc.freeze()  # what was imported stays: no collection in a watcher has to walk over it
        pid, said = self._fork(first=True, close=ready_fd)
        os.write(ready_fd, said or NOT_READY.encode())
        os.close(ready_fd)
        if said != WATCHING:
            _kill(pid)
            return ExitCode.FAILED
        # The first words import the log itself, which takes 0.1 s: by now nobody waits, and later forks have it.
        self._post.log.warning("watching", lane=self._post.spec.lane, watcher=pid, enforce=self._post.spec.enforce)
        return self._supervise(identify(pid))

    def take_over(self, watcher: ProcessId) -> ExitCode:
        """Supervise a watcher that lives already, in a dead supervisor's place."""
        take_priority()
        gc.freeze()
        self._post.log.warning("took over a watcher whose supervisor died", watcher=watcher.pid)
        return self._supervise(watcher)

    def _supervise(self, watcher: ProcessId | None) -> ExitCode:
        while True:
            if watcher is not None:
                self._await_death(watcher)
            noted = self._post.box.noted() or {}
            if "done" in noted:
                return ExitCode(noted["done"])
            self._post.log.error("the watcher died; another one takes its place")
            if self._dies_often():
                return self._kill_lane(f"its watcher died {MOST_DEATHS} times within {WITHIN_S:g} s")
            pid, said = self._fork(first=False)
            if said != WATCHING:
                _kill(pid)
                return self._kill_lane(f"its watcher died, and for the next one {said.decode() or NOT_READY}")
            watcher = identify(pid)

    def _await_death(self, identity: ProcessId) -> None:
        """Return once the watcher is dead; one that looks no more is killed."""
        watcher, pid = FirstProcess.hold(identity), identity.pid
        began = self._post.clock.monotonic()
        while watcher is not None and not watcher.ended_within(LOOK_EVERY_S):
            looked = self._post.box.last_look()
            last = max(began, looked[0]) if looked is not None else began
            if self._post.clock.monotonic() - last > self._patience_s(pid):
                self._post.log.error("the watcher looks no more; it is killed", pid=pid)
                watcher.kill()
        if watcher is not None:
            watcher.close()
        with contextlib.suppress(ChildProcessError):  # one that was taken over is not our child
            os.waitpid(pid, os.WNOHANG)

    def _patience_s(self, pid: int) -> float:
        """For how long this watcher may look at nothing."""
        if unfinished(self._post) is not None:
            return TRIP_WITHIN_S
        found = stat(pid)
        return STARVED_AFTER_S if found is not None and found.state == RUNNABLE else HUNG_AFTER_S

    def _dies_often(self) -> bool:
        now = self._post.clock.monotonic()
        self._deaths.append(now)
        return len(self._deaths) == MOST_DEATHS and now - self._deaths[0] < WITHIN_S

    def _fork(self, *, first: bool, close: int | None = None) -> tuple[int, bytes]:
        """Fork a watcher; return its pid and what it said in time. `close`: a descriptor that is not for it."""
        told, tell = os.pipe()
        supervisor = this_process()
        pid = os.fork()
        if pid == 0:
            for fd in (told, close):
                if fd is not None:
                    os.close(fd)
            _be_watcher(self._post, supervisor, tell, first)
        os.close(tell)
        try:
            readable, _, _ = select.select([told], [], [], FIRST_READY_WITHIN_S if first else READY_WITHIN_S)
            return pid, os.read(told, select.PIPE_BUF) if readable else b""
        finally:
            os.close(told)

    def _kill_lane(self, why: str) -> ExitCode:
        """Nobody can watch, so nobody may serve; a lane that is being stopped goes anyway."""
        post, looked = self._post, self._post.box.last_look()
        known = looked[1] if looked is not None else Known()
        verdict = Trip(Rule.UNWATCHED, why, known.counters)
        post.log.error("nobody watches the lane any more", why=why)
        if not post.spec.enforce:
            observe(post, verdict, post.mode(), known.epoch)
        elif post.mode() is not Mode.STANDBY:
            _finish(post, verdict, post.mode(), known.epoch)
            return ExitCode.TRIPPED
        return ExitCode.FAILED


def _be_watcher(post: Post, supervisor: ProcessId, tell: int, first: bool) -> NoReturn:
    """In the child: watch, or finish the trip that a dead watcher had begun."""
    code = ExitCode.FAULT
    try:
        begun = unfinished(post)
        if begun is not None:
            _tell(tell, WATCHING)
            _finish(post, *begun)
            code = ExitCode.TRIPPED
        else:
            watcher = Watcher(post, supervisor)
            watcher.arm(first=first)
            _tell(tell, WATCHING)
            code = watcher.run()
    except LaneError as error:
        post.log.error("cannot watch", error=error.message)
        _tell(tell, error.message.encode()[: select.PIPE_BUF])
    except BaseException:
        post.log.error("a fault in the watcher", traceback=traceback.format_exc())
    finally:
        os._exit(code)


def _finish(post: Post, verdict: Trip, mode: Mode, epoch: int) -> None:
    record = trip(post, verdict, mode, epoch, [Watched(service) for service in post.services()])
    if record is not None:
        follow_up(post, record)


def _tell(fd: int, words: bytes) -> None:
    with contextlib.suppress(OSError):  # the supervisor died; its watcher goes on
        os.write(fd, words)
    with contextlib.suppress(OSError):
        os.close(fd)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # our own child, not waited for: the pid is still its own
