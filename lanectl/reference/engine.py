"""The engine thread: it steps while there is work, and hands what came of it to whoever listens."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from lanectl.reference.faults import StepFaults
from lanectl.reference.scheduler import Request, Scheduler, StepReport


class Engine:
    """Runs a scheduler in a thread of its own. Reports are handed to `deliver`, and the end of the thread by a failure
    to `died`, from that thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        deliver: Callable[[StepReport], None],
        died: Callable[[], None],
        faults: StepFaults,
    ) -> None:
        self._scheduler = scheduler
        self._deliver = deliver
        self._died = died
        self._faults = faults
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.failed: BaseException | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Given a request, have it run: it joins between two steps."""
        self._faults.submitted += 1
        self._call(lambda: self._scheduler.submit(request))

    def abort(self, request: Request, reason: str) -> None:
        """Given a request and a reason, take it out between two steps."""
        self._call(lambda: self._scheduler.abort(request, reason))

    def stop(self, within_s: float) -> None:
        """Stop after the step in hand; a thread that does not end in time is left behind (it is a daemon)."""
        self._stopping = True
        self._call(lambda: None)
        self._thread.join(within_s)

    def _call(self, call: Callable[[], None]) -> None:
        with self._wake:
            self._calls.append(call)
            self._wake.notify()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._take_calls()
                self._faults.before_step()
                self._deliver(self._scheduler.step())
        except BaseException as failure:  # the server must know why nothing is answered any more
            self.failed = failure
            self._died()
            raise

    def _take_calls(self) -> None:
        """Make the calls that wait; while there is nothing to compute, wait for one."""
        if not self._calls and not self._scheduler.busy:
            with self._wake:
                while not self._calls:
                    self._wake.wait()
        while self._calls:
            self._calls.popleft()()
