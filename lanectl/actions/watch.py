"""The watcher: look, judge, and kill the lane when it must be. One process, forked by its supervisor.

The loop itself touches nothing that can hang: the counters' file, pidfds, and the watchdog's own small files. Whatever
asks the engine is a thread of its own.
"""

from __future__ import annotations

import math
import select
from collections.abc import Sequence
from dataclasses import replace

from lanectl.actions.trip import follow_up, observe, trip
from lanectl.actions.watch_eyes import EngineEyes
from lanectl.actions.watch_orders import Orders, kills, stamp_of, unkillable
from lanectl.actions.watch_post import Post
from lanectl.actions.watch_rival import succeeded_by
from lanectl.actions.watch_succession import Succession
from lanectl.actions.watched import Watched
from lanectl.core.watch import Hold, Known, Mode, NewEpoch, Rule, Sample, Sidecar, Trip, judge
from lanectl.errors import ExitCode, LaneError
from lanectl.probes.counters import CounterFile
from lanectl.store.process import ProcessId, this_process
from lanectl.store.watch import Status, Wish

# A stall is seen to begin at most one look late, and its end falls on a look of its own (`Hold.deadline`): so the kill
# follows the deadline by at most 45 ms and a wake-up, by half of that in the middle, within the 50 ms asked for.
# 22 looks a second at about 0.35 ms of processor time each (cold caches, a core that is clocked down) are 0.8 % of one;
# the rest of the 1 % that may be used goes to questions to the engine and the status on disk.
LOOK_EVERY_S = 0.045
NOTE_EVERY_S = 0.1  # what a successor may have to find out again
SAY_EVERY_S = 0.5
ENGINE_WITHIN_S = 5.0  # an engine that has not answered by then is not counted on
MS = 1000
WORST_FIRST = (Sidecar.GONE, Sidecar.PAUSED, Sidecar.UNKNOWN, Sidecar.RUNNING)


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
        self._replaced = False
        self._said, self._stamp = str(post.files.said), (0, 0)
        self._eyes = EngineEyes(post.engine, post.clock, post.spec.services)
        self._rounds = 0
        self._orders = Orders(post, self._lane, self._eyes)
        self._status = Status(self._mode, this_process(), supervisor, self._now())
        self._succession = Succession(post, supervisor, self._status.watcher)
        self._next_look = self._next_note = self._next_word = self._now()

    def arm(self, *, first: bool) -> None:
        """Get ready, and prove that the lane can be seen and killed. Raise `LaneError` saying what cannot be.

        A watcher that takes a dead one's place (not `first`) proves nothing: it watches as well as it can, and by the
        order that holds.
        """
        self._eyes.start()
        if first:
            self._eyes.wait_for_all(ENGINE_WITHIN_S)
            self._take_in()
            problem = self._look().unreadable or unkillable(kills(self._lane, since=0.0))
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
        self._obey(sample.at)
        over = self._over()
        if over or sample.at >= self._next_word:
            if self._gives_way():
                return self._done()
            self._say(sample, over)
        return self._done() if over else None

    def _done(self) -> ExitCode:
        self._post.box.note({"done": int(ExitCode.OK)})
        return ExitCode.OK

    def _gives_way(self) -> bool:
        """True when another watchdog watches the lane: the status is its own from now on.

        It is read only when somebody else has written it.
        """
        if stamp_of(self._said) == self._stamp:
            return False
        other = succeeded_by(self._post.files, self._status, self._mode)
        if other is not None:
            self._post.log.warning("another watchdog watches this lane; this one ends", watcher=other.pid)
        return other is not None

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
        self._succession.look()

    def _sleep(self) -> None:
        """Wait for the next look, or for the end of a process that matters."""
        held = {watched.first.fd: watched for watched in self._lane if watched.first is not None}
        poll = select.poll()
        for fd in held:
            poll.register(fd, select.POLLIN)
        if self._succession.fd is not None:
            poll.register(self._succession.fd, select.POLLIN)
        left_ms = math.ceil((self._next_look - self._now()) * MS)
        for fd, _ in poll.poll(max(0, left_ms)):
            if fd in held:
                held[fd].ended()
            else:
                self._succession.ended()

    def _obey(self, now: float) -> None:
        """Follow the owner's newest order, and say so at once."""
        answer = self._orders.answer(now)
        if answer is None:
            return
        if not answer.refused:
            self._mode = answer.order.wish.mode or self._mode
            self._replaced = answer.order.wish is Wish.REPLACED
        self._status = replace(self._status, acked=answer.order.seq, refused=answer.refused)
        self._next_word = now

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
            kills=kills(self._lane, since=0.0),
            supervisor=self._succession.supervisor,
            ended=ended,
            watching=tuple(watched.as_known for watched in self._lane),
        )
        try:
            self._post.files.write_status(self._status)
            self._stamp = stamp_of(self._said)
        except LaneError as error:
            self._post.log.warning("the status cannot be written; watching goes on", error=error.message)


def _worst(sidecars: Sequence[Watched]) -> Sidecar:
    """Return the state of the sidecar that is worst off."""
    found = [watched.as_sidecar for watched in sidecars]
    return next((state for state in WORST_FIRST if state in found), Sidecar.UNKNOWN)
