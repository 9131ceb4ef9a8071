"""When a lane must be killed: the sidecar's counters, sample by sample. A dark lane beats one that answers wrongly.

A server that computes only the hot experts asks a sidecar for the cold ones through a file of shared memory. When the
sidecar does not answer within a spin limit the server drops the cold part and goes on: no error, wrong tokens. Two
things are seen from outside: a call waits and none is completed any more (soon the limit would run out), and the count
of dropped parts (then it has). Tokens and rows are not looked at: a long prefill moves neither for minutes, and the
fused decode path does not count them.

Source of the file: the expert sidecar's peer protocol, version 2 ("peer_tier2"): seven little-endian signed 64-bit
words at offset 0. The server zeroes them when it boots.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import StrEnum

WORDS = struct.Struct("<7q")
NS_PER_MS = 1e6

# While a lane boots, its server captures graphs and tunes kernels through the sidecar, whose first call of a shape may
# compile for minutes. The known lanes boot in 4 to 30 minutes; five without one completed call are not work.
BOOT_STALL_S = 300.0


@dataclass(frozen=True, slots=True)
class Counters:
    """The seven words. `published`, `completed`: calls to the sidecar; `timeouts`: cold parts dropped, wrong tokens.

    `rows`, `tokens`: of no use here (see above). `wait_ns`: nanoseconds the server waited, in `waits` waits.
    """

    published: int
    completed: int
    timeouts: int
    rows: int = 0
    tokens: int = 0
    wait_ns: int = 0
    waits: int = 0

    @property
    def pending(self) -> bool:
        """True while a call waits. More completed than published is a call that ended between two reads."""
        return self.published > self.completed

    @property
    def mean_wait_ms(self) -> float | None:
        """Milliseconds a wait took on average; None before the first."""
        return self.wait_ns / self.waits / NS_PER_MS if self.waits > 0 else None


def decode(data: bytes) -> Counters | None:
    """Given the file's first bytes, return its counters; None when they are too few, or one is negative."""
    if len(data) < WORDS.size:
        return None
    words = WORDS.unpack_from(data)
    return None if min(words) < 0 else Counters(*words)


class Sidecar(StrEnum):
    """What is known of the sidecar's container. UNKNOWN: the engine does not say and its process cannot be seen."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FileId:
    """Which file it is: another one of the same name has another identity."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. `at`: CLOCK_MONOTONIC seconds. `file`: what the path names now, None when nothing.

    `counters`: what the file held that was there at arming, None with `unreadable` saying why; a reason may stand
    beside counters (the file was removed, but is still open here). `serving` False: the server is known not to run.
    """

    at: float
    counters: Counters | None
    file: FileId | None = None
    unreadable: str = ""
    sidecar: Sidecar = Sidecar.RUNNING
    serving: bool = True


class Mode(StrEnum):
    """BOOT: a long stall bound. SERVING: the spec's. STANDBY: the lane is being stopped, so only timeouts count."""

    BOOT = "boot"
    SERVING = "serving"
    STANDBY = "standby"


class Rule(StrEnum):
    """What a lane is killed for. UNWATCHED is not judged here: its watcher died and could not be replaced."""

    TIMEOUT = "timeout"
    FILE_UNREADABLE = "file unreadable"
    FILE_REPLACED = "file replaced"
    SIDECAR_GONE = "sidecar gone"
    SIDECAR_PAUSED = "sidecar paused"
    STALL = "stall"
    UNWATCHED = "unwatched"


@dataclass(frozen=True, slots=True)
class Known:
    """What the samples so far add up to. `pending_since`: the sample at which the call that waits was first seen to
    wait, None while none does. `epoch` counts the times the counters began anew, from 1."""

    counters: Counters | None = None
    file: FileId | None = None
    pending_since: float | None = None
    epoch: int = 1


@dataclass(frozen=True, slots=True)
class Hold:
    """All is well. `deadline`: when it would be a stall if nothing is completed any more; None: nothing waits."""

    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Trip:
    """Kill the lane. `reason` is for people; `counters` as last seen, None when they never were."""

    rule: Rule
    reason: str
    counters: Counters | None


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """The counters went down: the server zeroed them. The watch begins anew, with its clock and its counts."""

    epoch: int
    before: Counters
    after: Counters


Verdict = Hold | Trip | NewEpoch


def stall_bound(mode: Mode, stall_s: float) -> float | None:
    """Return after how many seconds without a completed call a waiting one is a stall; None: never."""
    if mode is Mode.STANDBY:
        return None
    return max(BOOT_STALL_S, stall_s) if mode is Mode.BOOT else stall_s


def judge(known: Known, sample: Sample, mode: Mode, stall_s: float) -> tuple[Verdict, Known]:
    """Given what is known and the next sample, return the verdict and what is known now.

    A stall is judged from samples alone: its clock starts at the first sample that shows the call waiting, so a lane
    that makes progress is never killed, and one that does not is at the first sample at or after the deadline.
    """
    now = _learn(known, sample)
    trip = _trip(known, now, sample, mode, stall_s)
    if trip is not None:
        return trip, now
    if now.epoch != known.epoch and known.counters is not None and sample.counters is not None:
        return NewEpoch(now.epoch, known.counters, sample.counters), now
    bound = stall_bound(mode, stall_s)
    return Hold(None if bound is None or now.pending_since is None else now.pending_since + bound), now


def _learn(known: Known, sample: Sample) -> Known:
    counters, last = sample.counters, known.counters
    file = known.file or sample.file
    if counters is None:
        return replace(known, file=file)
    again = last is not None and _went_down(last, counters)
    waits_on = last is not None and not again and counters.completed == last.completed
    since = known.pending_since if waits_on and known.pending_since is not None else sample.at
    return Known(
        counters=counters,
        file=file,
        pending_since=since if counters.pending and sample.serving else None,
        epoch=known.epoch + 1 if again else known.epoch,
    )


def _went_down(last: Counters, now: Counters) -> bool:
    return (
        now.published < last.published
        or now.completed < last.completed
        or now.timeouts < last.timeouts
        or now.waits < last.waits
    )


def _trip(known: Known, now: Known, sample: Sample, mode: Mode, stall_s: float) -> Trip | None:
    """The worst first. Where no server runs nobody is answered, and how its sidecar is does not matter.

    The file does: it outlives both, so whatever happened to it happened to a lane that served.
    """
    same_epoch = known.counters is not None and now.epoch == known.epoch
    before = known.counters.timeouts if same_epoch and known.counters is not None else 0
    if sample.counters is not None and sample.counters.timeouts > before:
        reason = f"the server gave up waiting for its sidecar (timeouts {before} -> {sample.counters.timeouts}): "
        return Trip(Rule.TIMEOUT, reason + "answers since then may be wrong", now.counters)
    if mode is Mode.STANDBY:
        return None
    if sample.file is not None and sample.file != now.file:
        return Trip(Rule.FILE_REPLACED, "the counters' file was replaced by another one", now.counters)
    if sample.unreadable or sample.counters is None:
        return Trip(Rule.FILE_UNREADABLE, f"the counters cannot be read: {sample.unreadable}", now.counters)
    if not sample.serving:
        return None
    if sample.sidecar is Sidecar.GONE:
        return Trip(Rule.SIDECAR_GONE, "the sidecar does not run", now.counters)
    if sample.sidecar is Sidecar.PAUSED:
        return Trip(Rule.SIDECAR_PAUSED, "the sidecar is paused", now.counters)
    return _stalled(now, sample, mode, stall_s)


def _stalled(now: Known, sample: Sample, mode: Mode, stall_s: float) -> Trip | None:
    bound = stall_bound(mode, stall_s)
    if bound is None or now.pending_since is None or now.counters is None or sample.at < now.pending_since + bound:
        return None
    waited = sample.at - now.pending_since
    seen = f"published {now.counters.published}, completed {now.counters.completed}"
    return Trip(
        Rule.STALL, f"the sidecar completed nothing for {waited:.2f} s while a call waited ({seen})", now.counters
    )
