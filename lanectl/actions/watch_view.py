"""A watchdog as its files show it, and its life where they do not: for its owner and everybody who asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lanectl.actions.watch_life import Life, life_of
from lanectl.core.watch import Counters, Mode, Sidecar
from lanectl.errors import ExitCode
from lanectl.store.files import StoreError
from lanectl.store.process import alive, boot_id
from lanectl.store.watch import Order, Status, TripRecord, WatchFiles, WatchSpec

T = TypeVar("T")

# Its status is rewritten twice a second. On a machine under load a word may be late, but not four of them.
STALE_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class WatchView:
    """A watchdog. `armed`: it lives and looks; else `why` not. `age_s`: of its last look.

    `tripped`: it killed the lane; `observed`: in mode `observe` it would have. `supervised` False: it lives, and nobody
    would notice its death. `damage`: which of its files are lost or damaged; `lanectl recover` writes them again.
    `unwritten`: it looks, and its status is not written any more, as on a full disk.
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
    damage: str = ""
    unwritten: bool = False

    @property
    def sound(self) -> bool:
        """True while it is armed and its files are whole."""
        return self.armed and not self.damage

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


@dataclass(frozen=True, slots=True)
class _Files:
    """What a watchdog's files hold; None for one that is missing or damaged, and then `damage` says so."""

    spec: WatchSpec | None
    order: Order | None
    status: Status | None
    tripped: TripRecord | None
    observed: TripRecord | None
    damage: tuple[str, ...]
    unreadable_trip: str

    @property
    def none(self) -> bool:
        return not self.damage and not self.unreadable_trip and (self.spec, self.status, self.tripped) == (None,) * 3


def armed_by(lane: str) -> str:
    """Return what arms the watchdog of a lane that serves, in words."""
    return f"`lanectl recover` or `lanectl watch {lane}` arms it"


def mended_by(lane: str) -> str:
    """Return what writes the lost files of a watchdog that lives again, in words."""
    return f"`lanectl recover` or `lanectl watch {lane}` writes them again"


def view(files: WatchFiles, lane: str) -> WatchView | None:
    """Return what is seen of the watchdog of a lane; None when there never was one.

    Damaged files are told in `damage`, and raise nothing.
    """
    found = _read(files)
    status, tripped = found.status, found.tripped
    here = status is not None and status.watcher.boot_id == boot_id()
    age_s = _age_s(status.looked_at) if status is not None and here else None
    why = _why_not(status, age_s)
    life = None
    if why and tripped is None and not (status is not None and status.ended):
        life = life_of(files)
        why, age_s = _by_life(life, why, age_s)
    if found.none and life is None:
        return None
    if tripped is not None or found.unreadable_trip:
        why = f"it tripped at {tripped.at}" if tripped is not None else found.unreadable_trip
    known = life.known if life is not None else None
    supervisors = [status.supervisor] if status is not None else list(life.processes[1:]) if life is not None else []
    return WatchView(
        lane=found.spec.lane if found.spec is not None else lane,
        armed=not why,
        why=why,
        mode=_mode(found),
        enforce=found.spec is None or found.spec.enforce,
        age_s=age_s,
        epoch=known.epoch if known is not None else status.epoch if status is not None else 0,
        counters=known.counters if known is not None else status.counters if status is not None else None,
        sidecar=status.sidecar if status is not None else Sidecar.UNKNOWN,
        supervised=any(one is not None and alive(one) for one in supervisors),
        tripped=tripped,
        observed=found.observed,
        damage="" if why else "; ".join(_lost(files, found) + found.damage),
        unwritten=not why and life is not None,
    )


def _read(files: WatchFiles) -> _Files:
    damage: list[str] = []
    trouble: list[str] = []
    return _Files(
        spec=_or_none(files.spec, damage),
        order=_or_none(files.order, damage),
        status=_or_none(files.status, damage),
        observed=_or_none(files.observed, damage),
        tripped=_or_none(files.tripped, trouble),
        damage=tuple(damage),
        unreadable_trip="; ".join(trouble),
    )


def _or_none(read: Callable[[], T | None], trouble: list[str]) -> T | None:
    try:
        return read()
    except StoreError as error:
        trouble.append(error.message)
        return None


def _lost(files: WatchFiles, found: _Files) -> tuple[str, ...]:
    """Say which files are not there that a watchdog has from its first moment on."""
    named = {"spec.json": found.spec, files.control.name: found.order}
    damaged = " ".join(found.damage)
    return tuple(
        f"{files.folder / name} is missing"
        for name, content in named.items()
        if content is None and name not in damaged
    )


def _mode(found: _Files) -> Mode:
    """The mode that it says; else the one that was ordered, which holds once it lives."""
    if found.status is not None:
        return found.status.mode
    if found.order is not None:
        return found.order.wish.mode or Mode.SERVING
    return Mode.SERVING


def _by_life(life: Life | None, why: str, age_s: float | None) -> tuple[str, float | None]:
    """Given why its files do not show it as armed, return why it is not and the age of its last look."""
    if life is None or life.looked_at is None or not life.seen:
        return why, age_s
    age_s = _age_s(life.looked_at)
    if life.at_last:
        return "it has begun to kill the lane, or to end", age_s
    return ("" if age_s <= STALE_AFTER_S else f"it has not looked for {age_s:.1f} s"), age_s


def _age_s(looked_at: float) -> float:
    return max(0.0, time.monotonic() - looked_at)


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
