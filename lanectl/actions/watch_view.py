"""A watchdog as its files show it, for its owner and for everybody who asks how the lane is."""

from __future__ import annotations

import time
from dataclasses import dataclass

from lanectl.core.watch import Counters, Mode, Sidecar
from lanectl.errors import ExitCode
from lanectl.store.process import alive, boot_id
from lanectl.store.watch import Status, TripRecord, WatchFiles

# Its status is rewritten twice a second. On a machine under load a word may be late, but not four of them.
STALE_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class WatchView:
    """A watchdog as its files show it. `armed`: it lives and looks; else `why` not. `age_s`: of its last look.

    `tripped`: it killed the lane; `observed`: in mode `observe` it would have. `supervised` False: it lives, and nobody
    would notice its death.
    """

    lane: str
    armed: bool
    why: str
    mode: Mode
    enforce: bool
    age_s: float | None
    epoch: int
    counters: Counters | None
    sidecar: Sidecar
    supervised: bool
    tripped: TripRecord | None
    observed: TripRecord | None

    @property
    def waits(self) -> int:
        return self.counters.waits if self.counters else 0

    @property
    def exit_code(self) -> ExitCode:
        """TRIPPED, OK while it is armed, FAILED when nobody watches."""
        if self.tripped is not None:
            return ExitCode.TRIPPED
        return ExitCode.OK if self.armed else ExitCode.FAILED

    @property
    def mean_wait_ms(self) -> float | None:
        return self.counters.mean_wait_ms if self.counters else None


def lives(status: Status) -> bool:
    """True while one of its processes lives: either starts the other again."""
    return alive(status.watcher) or (status.supervisor is not None and alive(status.supervisor))


def view(files: WatchFiles) -> WatchView | None:
    """Return what a watchdog's files say; None when there never was one. Raise `StoreError`."""
    spec, status = files.spec(), files.status()
    if spec is None:
        return None
    here = status is not None and status.watcher.boot_id == boot_id()
    age_s = max(0.0, time.monotonic() - status.looked_at) if status is not None and here else None
    tripped = files.tripped()
    why = f"it tripped at {tripped.at}" if tripped is not None else _why_not(status, age_s)
    return WatchView(
        lane=spec.lane,
        armed=not why,
        why=why,
        mode=status.mode if status is not None else Mode.BOOT,
        enforce=spec.enforce,
        age_s=age_s,
        epoch=status.epoch if status is not None else 0,
        counters=status.counters if status is not None else None,
        sidecar=status.sidecar if status is not None else Sidecar.UNKNOWN,
        supervised=status is not None and status.supervisor is not None and alive(status.supervisor),
        tripped=tripped,
        observed=files.observed(),
    )


def _why_not(status: Status | None, age_s: float | None) -> str:
    if status is None:
        return "it has not started"
    if status.ended:
        return status.ended
    if not alive(status.watcher):
        return "its watcher is dead"
    if age_s is None or age_s > STALE_AFTER_S:
        return f"it has not looked for {age_s or 0:.1f} s"
    return ""
