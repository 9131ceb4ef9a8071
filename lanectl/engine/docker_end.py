"""How a container ends on a Docker Engine: stop by our own clock, then kill; removal that waits until it is gone.

What the engine's calls return is a hint. What counts is what it says of the container afterwards: a time-out means
"look", never "failed" and never "again from the start".
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from lanectl.core.container import Container, Status, Stopped
from lanectl.engine.docker_api import Answer, DockerApi, Refusal
from lanectl.errors import EngineError, EngineUnknown, LaneError, NotThere, Unreachable

# The engine's own kill comes this much after ours: it acts only if lanectl died while it waited.
BACKSTOP_S = 10
# After SIGKILL. The engine itself waits 12 s (10 + 2) for the exit; a process that unpins 250 GB takes longer to die.
KILL_LIMIT_S = 60.0
REMOVE_LIMIT_S = 60.0  # seen: 10 ms; a removal that is already in progress may have a large layer to delete
ANSWER_S = 15.0  # what an answer may take beyond the wait it was asked for: the engine's own 12 s, rounded up

# While the engine works on our request its answer wakes us, so looks are rare and take no time from it; once it has
# answered and the container still runs, they are frequent at first.
WAITING_LOOK_S = 0.25
LONGEST_LOOK_S = 0.5
SOON_S = 0.005

Look = Callable[[], Container | None]


def stop(api: DockerApi, path: str, look: Look, grace_s: float) -> Stopped:
    """Given a container's API path and a look at it, stop it as `ContainerEngine.stop` says."""
    began = time.monotonic()
    engine_grace = math.ceil(grace_s) + BACKSTOP_S
    params, read_s = {"t": engine_grace}, engine_grace + ANSWER_S
    asked = _Asked(lambda: api.act("POST", f"{path}/stop", what="stop the container", params=params, read_s=read_s))
    ended = asked.ended(look, began + grace_s)
    how = "already" if asked.was_so_already else "term"
    if ended is None:
        how = "kill"
        try:
            ended = kill(api, path, look)
        except NotThere:  # it was there: it ended and has removed itself
            ended = Ended(None)
    return Stopped(how, time.monotonic() - began, ended.exit_code)


def kill(api: DockerApi, path: str, look: Look) -> Ended:
    """Given a container's API path and a look at it, kill it as `ContainerEngine.kill` says; return how it ended."""
    params, read_s = {"signal": "KILL"}, KILL_LIMIT_S
    asked = _Asked(lambda: api.act("POST", f"{path}/kill", what="kill the container", params=params, read_s=read_s))
    ended = asked.ended(look, time.monotonic() + KILL_LIMIT_S)
    if ended is None:
        seen = f"it cannot be looked at: {asked.lost}" if asked.lost else "it still runs"
        raise EngineUnknown(
            f"{KILL_LIMIT_S:g} s after SIGKILL the container is not known to have ended: {seen}",
            "start nothing beside it: see what holds its processes (state D in ps), then restart the engine",
        ) from (asked.lost or asked.error)
    return ended


def remove(api: DockerApi, path: str, look: Look) -> None:
    """Given a container's API path and a look at it, remove it with its anonymous volumes; return once it is gone."""
    deadline = time.monotonic() + REMOVE_LIMIT_S
    cause: Exception | None = None
    try:
        api.act("DELETE", path, what="remove the container", params={"force": 1, "v": 1}, read_s=REMOVE_LIMIT_S)
    except NotThere:
        return
    except Refusal as refusal:
        if refusal.status != HTTPStatus.CONFLICT:  # a removal is in progress already
            raise
        cause = refusal
    except EngineUnknown as unknown:
        cause = unknown
    pause = SOON_S
    while look() is not None:
        if time.monotonic() > deadline:
            raise EngineUnknown(f"the container is still there {REMOVE_LIMIT_S:g} s after its removal") from cause
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_LOOK_S)


@dataclass(frozen=True, slots=True)
class Ended:
    """A container that does not run any more. `exit_code` is None where there is none: never started, or gone."""

    exit_code: int | None
    gone: bool = False


class _Asked:
    """One call made in a thread of its own, because it may block for longer than its caller can wait.

    It is a daemon thread: a call that never comes back does not keep lanectl from ending.
    """

    def __init__(self, call: Callable[[], Answer]) -> None:
        self.error: Exception | None = None
        self.lost: LaneError | None = None  # why the last look failed, None when it did not
        self._answer: Answer | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    @property
    def was_so_already(self) -> bool:
        return self._answer is not None and self._answer.status == HTTPStatus.NOT_MODIFIED

    def ended(self, look: Look, deadline: float) -> Ended | None:
        """Look until the engine says that the container does not run; return None if it never does by the deadline.

        Looks that fail are repeated. Raise `Unreachable` when the call itself could not be made, `NotThere` when the
        engine says so of the container and it is not seen either.
        """
        pause = SOON_S
        while True:
            answered = self._answered(min(WAITING_LOOK_S, deadline - time.monotonic()))
            if isinstance(self.error, Unreachable):
                raise self.error
            ended = self._look(look)
            if isinstance(self.error, NotThere) and ended is not None and ended.gone:
                raise self.error
            if ended is not None or time.monotonic() >= deadline:
                return ended
            if answered:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_LOOK_S)

    def _look(self, look: Look) -> Ended | None:
        try:
            container = look()
        except (EngineError, Unreachable) as error:
            self.lost = error
            return None
        self.lost = None
        if container is None:
            return Ended(None, gone=True)
        # One in restart back-off will run again by itself; one that is being removed will not.
        runs = container.running or container.status is Status.RESTARTING
        return None if runs else Ended(container.exit_code)

    def _answered(self, within_s: float) -> bool:
        self._thread.join(max(0.0, within_s))
        return not self._thread.is_alive()

    def _run(self, call: Callable[[], Answer]) -> None:
        try:
            self._answer = call()
        except Exception as error:
            self.error = error
