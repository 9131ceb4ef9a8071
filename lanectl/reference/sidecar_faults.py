"""A sidecar's ways to misbehave: late, gone, wrong or frozen."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

from lanectl.reference.cold_experts import ColdExperts
from lanectl.reference.faults import Faults
from lanectl.reference.weights import Floats


class CallFaults:
    """What goes wrong with the calls a sidecar serves."""

    def __init__(self, faults: Faults) -> None:
        self._slower = faults.number("peer-slow")
        self._slower_next = faults.number("peer-slow-on-signal")
        self._wrong = faults.number("peer-wrong")
        self._exit_after = faults.count("peer-exit")
        self._freeze_after = faults.count("peer-freeze")
        self._calls = 0
        if self._slower_next:
            signal.signal(signal.SIGUSR1, self._change_speed)

    def after_call(self, out: Floats, seconds: float) -> None:
        """Given a call's outputs, to be changed in place, and the time it took, do what is asked for."""
        self._calls += 1
        if self._wrong:
            # The outputs turned by one place are as long as they are and point elsewhere: an error of that share.
            out += self._wrong * np.roll(out, 1, axis=-1)
        slower = self._slower  # read once: a signal may change it at any time
        if slower > 1:
            time.sleep(seconds * (slower - 1))
        if self._calls == self._exit_after:
            os._exit(1)
        if self._calls == self._freeze_after:
            _freeze()

    def _change_speed(self, *_: object) -> None:
        self._slower, self._slower_next = self._slower_next, self._slower


def damage(experts: ColdExperts, faults: Faults) -> None:
    """Negate one expert's matrix, if asked for: the self test must find it."""
    if "damaged-expert" in faults:
        up, _ = experts.at(0, 0)
        up *= -1


def _freeze() -> None:
    """Stand still until SIGCONT. Not by SIGSTOP, which the first process of a container does not obey from inside."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
    signal.sigwait([signal.SIGCONT])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCONT])
