"""How a container ends on a Docker Engine: stop by our own clock, then kill; removal that waits until it is gone.

What the engine's calls return is a hint. What counts is what it says of the container afterwards: a time-out means
"look", never "failed" and never "again from the start".
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from lanectl.core.container import Container, Status, Stopped
from lanectl.engine.docker_api import Answer, DockerApi, Refusal
from lanectl.errors import EngineError, EngineUnknown, NotThere, Unreachable

# The engine's own kill comes this much after ours: it acts only if lanectl died while it waited.
BACKSTOP_S = 10
# After SIGKILL. The engine itself waits 12 s (10 + 2) for the exit; a process that unpins 250 GB takes longer to die.
KILL_LIMIT_S = 60.0
REMOVE_LIMIT_S = 60.0  # seen: 10 ms; a removal that is already in progress may have a large layer to delete
ANSWER_S = 15.0  # what an answer may take beyond the wait it was asked for: the engine's own 12 s, rounded up

# While the engine works on our request its answer wakes us, so looks are rare; once it answered they are frequent.
FIRST_LOOK_S = 0.05
LONGEST_LOOK_S = 0.5
SOON_S = 0.005

Look = Callable[[], Container | None]


def stop(api: DockerApi, path: str, look: Look, grace_s: float) -> Stopped:
    """Given a container's API path and a look at it, stop it as `ContainerEngine.stop` says."""
    began = time.monotonic()
    engine_grace = math.ceil(grace_s) + BACKSTOP_S
    asked = _Asked(
        lambda: api.act(
            "POST",
            f"{path}/stop",
            what="stop the container",
            params={"t": engine_grace},
            read_s=engine_grace + ANSWER_S,
        )
    )
    ended = _ended(asked, look, began + grace_s)
    if ended is not None:
        how = "already" if asked.said_already() else "term"
    else:
        how = "kill"
        ended = _kill(api, path, look)
    return Stopped(how, time.monotonic() - began, ended.exit_code)


def kill(api: DockerApi, path: str, look: Look) -> None:
    """Given a container's API path and a look at it, kill it as `ContainerEngine.kill` says."""
    _kill(api, path, look)


def remove(api: DockerApi, path: str, look: Look) -> None:
    """Given a container's API path and a look at it, remove it with its anonymous volumes; return once it is gone."""
    deadline = time.monotonic() + REMOVE_LIMIT_S
    cause: Exception | None = None
    try:
        api.act("DELETE", path, what="remove the container", params={"force": 1, "v": 1}, read_s=REMOVE_LIMIT_S)
    except NotThere:
        return
    except Refusal as refusal:
        if refusal.status != 409:  # 409: a removal is in progress already
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


class _Ended:
    """A container that does not run any more; `exit_code` None when it is gone altogether."""

    def __init__(self, container: Container | None) -> None:
        self.exit_code = container.exit_code if container else None


class _Asked:
    """One call made in a thread of its own, because it may block for longer than its caller can wait.

    It is a daemon thread: a call that never comes back does not keep lanectl from ending.
    """

    def __init__(self, call: Callable[[], Answer]) -> None:
        self.error: Exception | None = None
        self._answer: Answer | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def answered(self, within_s: float) -> bool:
        """Wait up to `within_s` seconds; return whether the call came back."""
        self._thread.join(max(0.0, within_s))
        return not self._thread.is_alive()

    def said_already(self) -> bool:
        return self._answer is not None and self._answer.status == 304

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._answer = call()
        except Exception as error:
            self.error = error


def _kill(api: DockerApi, path: str, look: Look) -> _Ended:
    asked = _Asked(
        lambda: api.act(
            "POST", f"{path}/kill", what="kill the container", params={"signal": "KILL"}, read_s=KILL_LIMIT_S
        )
    )
    ended = _ended(asked, look, time.monotonic() + KILL_LIMIT_S)
    if ended is None:
        raise EngineUnknown(
            f"the container still runs {KILL_LIMIT_S:g} s after SIGKILL",
            "start nothing beside it: see what holds its processes (state D in ps), then restart the engine",
        ) from asked.error
    return ended


def _ended(asked: _Asked, look: Look, deadline: float) -> _Ended | None:
    """Look until the engine says that the container does not run; return None when it still does at the deadline.

    Looks that fail are repeated. Raise `NotThere` or `Unreachable` when the request itself could not be made.
    """
    pause = FIRST_LOOK_S
    hurried = False
    while True:
        answered = asked.answered(min(pause, deadline - time.monotonic()))
        if isinstance(asked.error, (NotThere, Unreachable)):
            raise asked.error
        try:
            container = look()
            if container is None or not _runs(container):
                return _Ended(container)
        except (EngineUnknown, Unreachable) as error:
            lost: EngineError | Unreachable = error
            asked.error = asked.error or lost
        if time.monotonic() >= deadline:
            return None
        if answered:
            pause = pause if hurried else SOON_S
            hurried = True
            time.sleep(pause)
        pause = min(2 * pause, LONGEST_LOOK_S)


def _runs(container: Container) -> bool:
    """A container in restart back-off will run again by itself; one that is being removed will not."""
    return container.running or container.status is Status.RESTARTING
