"""A watchdog's processes come first, and no signal but SIGKILL ends them. What they start is like any other process."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NICE, NO_LONGER_NICE = -10, 0
OOM_SCORE = Path("/proc/self/oom_score_adj")
SPARED, NO_LONGER_SPARED = "-900", "0"  # proc(5): -1000 would be never


def take_priority() -> None:
    """Ignore signals; and when processor time or memory is short, others go without first (where we may ask that)."""
    _become(signal.SIG_IGN, NICE, SPARED)


def give_up_priority() -> None:
    """Be again what a process is that a person starts: ignored signals and priorities are inherited."""
    _become(signal.SIG_DFL, NO_LONGER_NICE, NO_LONGER_SPARED)


def _become(handler: signal.Handlers, nice: int, score: str) -> None:
    for number in IGNORED:
        signal.signal(number, handler)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    with contextlib.suppress(OSError):
        OOM_SCORE.write_text(score)
