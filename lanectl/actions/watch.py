"""The watcher: look, judge, and kill the lane when it must be. One process, forked by its supervisor.

The loop itself touches nothing that can hang: the counters' file, pidfds, and the watchdog's own small files. Whatever
asks the engine is a thread of its own.
"""

from __future__ import annotations

import math
import os
import select
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lanectl.actions.trip import follow_up, observe, trip
from lanectl.actions.watch_eyes import EngineEyes
from lanectl.actions.watch_post import Post, job_command
from lanectl.actions.watched import BY_ENGINE, BY_PIDFD, NOT_STARTED, Watched
from lanectl.core.watch import Hold, Known, Mode, NewEpoch, Rule, Sample, Sidecar, Trip, judge
from lanectl.errors import ExitCode, LaneError
from lanectl.probes.counters import CounterFile
from lanectl.probes.first_process import FirstProcess
from lanectl.store.process import ProcessId, identify, this_process
from lanectl.store.watch import Order, Status, Wish

# A stall is seen to begin at most one look late, and its end falls on a look of its own (`Hold.deadline`): so the kill
# follows the deadline by at most 30 ms and a wake-up, within the 50 ms asked for. 33 looks a second at about 0.2 ms of
# processor time (cold caches on a busy machine; 0.05 ms on an idle one) are 0.7 % of a core.
LOOK_EVERY_S = 0.03
NOTE_EVERY_S = 0.1  # what a successor may have to find out again
SAY_EVERY_S = 0.5
ORDERS_EVERY_S = 0.05
# An order is followed at once unless the engine has to say something first, and then it is asked at once.
ORDER_WITHIN_S = 5.0
SUPERVISOR_AGAIN_S = 5.0  # between two tries to start another supervisor
MS = 1000
WORST_FIRST = (Sidecar.GONE, Sidecar.PAUSED, Sidecar.UNKNOWN, Sidecar.RUNNING)
CAN_KILL = (BY_PIDFD, BY_ENGINE, NOT_STARTED)


@dataclass
class _Asked:
    """An order that is not answered yet, and since when."""

    order: Order
    since: float


class Watcher:
    """Watches one lane. `supervisor`: the process that replaces us when we die; when it dies we replace it."""

    def __init__(self, post: Post, supervisor: ProcessId) -> None:
        self._post = post
        self._now = post.clock.monotonic
        self._lane = [Watched(service) for service in post.services()]
        self._server, self._sidecars = self._lane[0], self._lane[1:]
        self._file = CounterFile(post.spec.counters)
        remembered = post.box.last_look()
        self._known = remembered[1] if remembered else Known()
        self._mode = Mode.BOOT
        self._observed: Rule | None = None
        self._control = str(post.files.control)
        self._stamp = (0, 0)
        self._asked: _Asked | None = None
        self._replaced = False
        self._supervisor = FirstProcess.hold(supervisor)
        self._new_supervisor: ProcessId | None = None
        self._eyes = EngineEyes(post.engine, post.clock, post.spec.services)
        self._rounds = 0
        self._next_look = self._next_note = self._next_word = self._next_order = self._now()
        self._status = Status(self._mode, this_process(), supervisor, self._now())

    def arm(self, *, first: bool) -> None:
        """Get ready, and prove that the lane can be seen and killed. Raise `LaneError` saying what cannot be.

        A watcher that takes a dead one's place (not `first`) proves nothing: it watches as well as it can, and by the
        order that holds.
        """
        self._eyes.start()
        if first:
            self._eyes.wait_for_all(ORDER_WITHIN_S)
            self._take_in()
            problem = self._self_test(since=0.0)
            if problem:
                raise LaneError(f"the watchdog of {self._post.spec.lane} cannot be armed: {problem}")
        else:
            self._mode = self._post.mode()
        self._say(self._look())

    def run(self) -> ExitCode:
        """Watch until the lane trips (TRIPPED), or nothing of it is left to watch (OK)."""
        while True:
            end = self._turn()
            if end is not None:
                return end
            self._sleep()

    def _turn(self) -> ExitCode | None:
        self._take_in()
        sample = self._look()
        verdict, self._known = judge(self._known, sample, self._mode, self._post.spec.stall_s)
        if sample.at >= self._next_note:
            self._next_note = sample.at + NOTE_EVERY_S
            self._post.box.looked(sample.at, self._known)
        self._next_look = sample.at + LOOK_EVERY_S
        if isinstance(verdict, Trip):
            end = self._trip(verdict)
            if end is not None:
                return end
        elif isinstance(verdict, NewEpoch):
            self._post.log.warning("the counters began anew", epoch=verdict.epoch, before=str(verdict.before))
        else:
            self._hold(verdict)
        self._obey(sample)
        over = self._over()
        if over or sample.at >= self._next_word:
            self._say(sample, over)
        if not over:
            return None
        self._post.box.note({"done": int(ExitCode.OK)})
        return ExitCode.OK

    def _look(self) -> Sample:
        """The processes first: what a server did before it ended is then in the counters that are read after."""
        serving, sidecar = self._server.may_run, _worst(self._sidecars)
        found = self._file.look()
        return Sample(self._now(), found.counters, found.file, found.unreadable, sidecar, serving)

    def _hold(self, verdict: Hold) -> None:
        self._observed = None
        if verdict.deadline is not None:
            self._next_look = min(self._next_look, verdict.deadline)

    def _trip(self, verdict: Trip) -> ExitCode | None:
        if self._post.spec.enforce:
            record = trip(self._post, verdict, self._mode, self._known.epoch, self._lane)
            self._say(self._look(), "the machine is going down" if record is None else f"tripped: {record.reason}")
            if record is None:
                return ExitCode.OK
            follow_up(self._post, record)
            return ExitCode.TRIPPED
        if verdict.rule is not self._observed:
            self._observed = verdict.rule
            observe(self._post, verdict, self._mode, self._known.epoch)
        if verdict.rule is Rule.FILE_REPLACED:
            self._read_new_file()
        return None

    def _read_new_file(self) -> None:
        """Who only observes goes on with the file that the path names now: its counters are another epoch."""
        try:
            new = CounterFile(self._post.spec.counters)
        except LaneError:
            return  # removed again: the next look says so
        self._file.close()
        self._file, self._known = new, Known(epoch=self._known.epoch + 1)

    def _take_in(self) -> None:
        """Take in what the engine said meanwhile. A server that is started again is followed, a sidecar is not."""
        if self._rounds != self._eyes.rounds:
            self._rounds = self._eyes.rounds
            for watched in self._lane:
                watched.look(self._eyes.seen(watched.name), follow=watched is self._server)
        if self._new_supervisor is not None:
            self._supervisor = FirstProcess.hold(self._new_supervisor)
            self._status = replace(self._status, supervisor=self._new_supervisor)
            self._new_supervisor = None

    def _sleep(self) -> None:
        """Wait for the next look, or for the end of a process that matters."""
        held = {watched.first.fd: watched for watched in self._lane if watched.first is not None}
        poll = select.poll()
        for fd in held:
            poll.register(fd, select.POLLIN)
        if self._supervisor is not None:
            poll.register(self._supervisor.fd, select.POLLIN)
        left_ms = math.ceil((self._next_look - self._now()) * MS)
        for fd, _ in poll.poll(max(0, left_ms)):
            if fd in held:
                held[fd].ended()
            else:
                self._supervisor = None
                self._status = replace(self._status, supervisor=None)
                threading.Thread(target=self._replace_supervisor, name="start a supervisor", daemon=True).start()

    def _replace_supervisor(self) -> None:
        """Start another supervisor, which takes us as we are."""
        post = self._post
        me = self._status.watcher
        options = ("--box-fd", str(post.box.fd), "--watcher", f"{me.pid}:{me.start_time}")
        command = job_command(post.state, post.key, *options)
        while self._new_supervisor is None:
            try:
                pid = post.jobs.start(
                    command, name=f"lanectl-watch-{post.key}", keep_fds=(post.box.fd,), log_path=str(post.files.log)
                )
                self._new_supervisor = identify(pid)
            except LaneError as error:
                post.log.error("no supervisor can be started; watching goes on", error=error.message)
            if self._new_supervisor is None:
                post.clock.sleep(SUPERVISOR_AGAIN_S)

    def _obey(self, sample: Sample) -> None:
        """Read a new order, and answer the one that is open as soon as it can be answered."""
        if sample.at >= self._next_order:
            self._next_order = sample.at + ORDERS_EVERY_S
            self._take_order(sample.at)
        if self._asked is None:
            return
        problem = self._problem_with(self._asked)
        if problem and sample.at - self._asked.since < ORDER_WITHIN_S:
            return
        order, self._asked = self._asked.order, None
        if not problem:
            self._mode = order.wish.mode or self._mode
            self._replaced = order.wish is Wish.REPLACED
        self._status = replace(self._status, acked=order.seq, refused=problem)
        self._next_word = sample.at

    def _take_order(self, now: float) -> None:
        stamp = _stamp(self._control)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            order = self._post.files.order()
        except LaneError as error:
            self._post.log.error("an order cannot be read", error=error.message)
            return
        if order is None or order.seq <= self._status.acked:
            return
        self._asked = _Asked(order, now)
        self._eyes.look_now()
        for service in order.services:
            for watched in self._lane:
                if watched.name == service.name and service.first is not None:
                    watched.hold(service.first)

    def _problem_with(self, asked: _Asked) -> str:
        """Say why an order cannot be followed (yet); empty when it can."""
        if asked.order.wish in (Wish.STANDBY, Wish.REPLACED):
            return ""
        if asked.order.wish is Wish.END:
            runs = [watched.name for watched in self._lane if watched.may_run]
            return f"a lane is watched until it is gone, and {', '.join(runs)} may still run" if runs else ""
        problem = self._self_test(asked.since)
        if not problem and asked.order.wish is Wish.SERVING and not self._server.may_run:
            return f"{self._server.name} does not run"
        return problem

    def _self_test(self, since: float) -> str:
        """Prove that the counters can be read and every container killed; return why not, empty when they can."""
        kills = {watched.name: watched.kill_by(since) for watched in self._lane}
        self._status = replace(self._status, kills=kills)
        cannot = [f"{name} cannot be killed: {how}" for name, how in kills.items() if how not in CAN_KILL]
        unreadable = self._file.look().unreadable
        return "; ".join([unreadable] * bool(unreadable) + cannot)

    def _over(self) -> str:
        """Say why there is nothing to watch any more; empty while there is."""
        if self._replaced:
            return "another watchdog takes over"
        if any(watched.may_run for watched in self._lane):
            return ""
        return "every container of the lane is gone"

    def _say(self, sample: Sample, ended: str = "") -> None:
        self._next_word = sample.at + SAY_EVERY_S
        self._status = replace(
            self._status,
            mode=self._mode,
            looked_at=sample.at,
            epoch=self._known.epoch,
            counters=self._known.counters,
            sidecar=sample.sidecar,
            serving=sample.serving,
            ended=ended,
        )
        try:
            self._post.files.write_status(self._status)
        except LaneError as error:
            self._post.log.warning("the status cannot be written; watching goes on", error=error.message)


def _stamp(path: str) -> tuple[int, int]:
    """Return what changes when the file is replaced; zeros while it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked at every look, a Path would cost more than the call
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


def _worst(sidecars: Sequence[Watched]) -> Sidecar:
    """Return the state of the sidecar that is worst off."""
    found = [watched.as_sidecar for watched in sidecars]
    return next((state for state in WORST_FIRST if state in found), Sidecar.UNKNOWN)
