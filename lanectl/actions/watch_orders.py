"""The owner's orders as the watcher takes them: read as soon as they are there, answered as soon as they can be."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lanectl.actions.watch_eyes import EngineEyes
from lanectl.actions.watch_post import Post
from lanectl.actions.watched import BY_ENGINE, BY_PIDFD, NOT_STARTED, Watched
from lanectl.errors import LaneError
from lanectl.store.watch import Order, Wish

READ_EVERY_S = 0.05
# An order is followed at once unless the engine has to say something first, and then it is asked at once.
ANSWER_WITHIN_S = 5.0
CAN_KILL = (BY_PIDFD, BY_ENGINE, NOT_STARTED)


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of an order: it is followed, unless `refused` says why not."""

    order: Order
    refused: str


class Orders:
    """Reads and answers orders about a lane (given in kill order, the server first)."""

    def __init__(self, post: Post, lane: Sequence[Watched], eyes: EngineEyes) -> None:
        self._post = post
        self._lane = lane
        self._eyes = eyes
        self._path = str(post.files.control)
        self._stamp = (0, 0)
        self._next_read = 0.0
        self._open: Order | None = None
        self._since = 0.0
        self._seq = 0

    def answer(self, now: float) -> Answer | None:
        """Return the answer to the newest order once there is one; None while none is open, or the engine is asked."""
        if now >= self._next_read:
            self._next_read = now + READ_EVERY_S
            self._read(now)
        if self._open is None:
            return None
        problem = self._problem_with(self._open)
        if problem and now - self._since < ANSWER_WITHIN_S:
            return None
        order, self._open = self._open, None
        return Answer(order, problem)

    def _read(self, now: float) -> None:
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            order = self._post.files.order()
        except LaneError as error:
            self._post.log.error("an order cannot be read", error=error.message)
            return
        if order is None or order.seq <= self._seq:
            return
        self._open, self._since, self._seq = order, now, order.seq
        self._eyes.look_now()
        firsts = {service.name: service.first for service in order.services}
        for watched in self._lane:
            watched.meet(firsts.get(watched.name), follow=watched is self._lane[0])

    def _problem_with(self, order: Order) -> str:
        """Say why an order cannot be followed (yet); empty when it can."""
        if order.wish in (Wish.STANDBY, Wish.REPLACED):
            return ""
        if order.wish is Wish.END:
            runs = [watched.name for watched in self._lane if watched.may_run]
            return f"a lane is watched until it is gone, and {', '.join(runs)} may still run" if runs else ""
        if order.wish is Wish.SERVING and not self._lane[0].may_run:
            return f"{self._lane[0].name} does not run"
        return unkillable(kills(self._lane, self._since))


def kills(lane: Sequence[Watched], since: float) -> Mapping[str, str]:
    """Prove for each container that it can be killed: say how, or why not. An engine must have answered since then."""
    return {watched.name: watched.kill_by(since) for watched in lane}


def unkillable(found: Mapping[str, str]) -> str:
    """Say what cannot be killed, and why; empty when all can."""
    return "; ".join(f"{name} cannot be killed: {how}" for name, how in found.items() if how not in CAN_KILL)


def stamp_of(path: str) -> tuple[int, int]:
    """Return what changes when the file is replaced; zeros while it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked many times a second, a Path would cost more than the call
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino
