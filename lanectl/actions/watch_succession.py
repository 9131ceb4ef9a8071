"""The watcher's side of its supervision: when the supervisor dies, another is started, which takes the watcher over."""

from __future__ import annotations

import threading

from lanectl.actions.watch_post import Post, job_command
from lanectl.errors import LaneError
from lanectl.probes.first_process import FirstProcess
from lanectl.store.process import ProcessId, identify

AGAIN_EVERY_S = 5.0  # between two tries to start another one


class Succession:
    """Holds the supervisor of the watcher `me`. `supervisor` is None while there is none."""

    def __init__(self, post: Post, supervisor: ProcessId, me: ProcessId) -> None:
        self._post = post
        self._me = me
        self._held: FirstProcess | None = None
        self._started: ProcessId | None = None
        self.supervisor: ProcessId | None = None
        self._hold(supervisor)

    @property
    def fd(self) -> int | None:
        """Readable once the supervisor has ended."""
        return self._held.fd if self._held is not None else None

    def look(self) -> None:
        """Hold the supervisor that was started, if one was."""
        if self._started is not None:
            started, self._started = self._started, None
            self._hold(started)

    def ended(self) -> None:
        """The supervisor has ended: start another one. It takes a while, so a thread does it."""
        if self._held is not None:
            self._held.close()
        self._held = self.supervisor = None
        threading.Thread(target=self._start, name="start a supervisor", daemon=True).start()

    def _hold(self, supervisor: ProcessId) -> None:
        self._held = FirstProcess.hold(supervisor)
        if self._held is None:
            self.ended()
        else:
            self.supervisor = supervisor

    def _start(self) -> None:
        post, watcher = self._post, f"{self._me.pid}:{self._me.start_time}"
        command = job_command(post.state, post.key, "--box-fd", str(post.box.fd), "--watcher", watcher)
        name, log_path = f"lanectl-watch-{post.key}", str(post.files.log)
        while self._started is None:
            try:
                self._started = identify(
                    post.jobs.start(command, name=name, keep_fds=(post.box.fd,), log_path=log_path)
                )
            except LaneError as error:
                post.log.error("no supervisor can be started; watching goes on", error=error.message)
            if self._started is None:
                post.clock.sleep(AGAIN_EVERY_S)
