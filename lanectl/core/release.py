"""When a GPU counts as released: samples go in, a verdict comes out.

Released means all of: memory at or below the floor, standing still there for the spec's time (a server that measures
free memory while it still grows fails its own start), and no compute process left. Where the card cannot say how much
memory is used (a GPU with coherent memory reads N/A), the list of processes decides alone. N/A is never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

# Memory that "stands still" may tremble: the driver's own bookkeeping moves by a few MiB, a model's by gigabytes.
STABLE_WITHIN_MIB = 64


@dataclass(frozen=True, slots=True)
class Holder:
    """A compute process on the GPU. `used_mib` None: it cannot be read."""

    pid: int
    name: str
    used_mib: int | None = None

    def __str__(self) -> str:
        size = "" if self.used_mib is None else f", {self.used_mib} MiB"
        return f"{self.name} (pid {self.pid}{size})"


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One reading at `at` (monotonic seconds). None = cannot tell."""

    at: float
    used_mib: int | None
    holders: tuple[Holder, ...] | None

    @property
    def known(self) -> bool:
        return self.used_mib is not None or self.holders is not None


class ReleaseState(StrEnum):
    HELD = "held"
    SETTLING = "settling"  # free, not yet for long enough
    RELEASED = "released"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ReleaseVerdict:
    """`basis`: what was judged, "memory" or "processes". `detail`: one line for a person."""

    state: ReleaseState
    detail: str
    basis: str = ""


def judge_release(samples: Sequence[GpuSample], *, floor_mib: int, stable_s: float) -> ReleaseVerdict:
    """Given the readings so far in order of time (at least one), return whether the GPU is released now.

    `floor_mib`: idle baseline plus what the spec allows above it. A reading that cannot tell, or one above the floor,
    starts the stable time anew.
    """
    last = samples[-1]
    if not last.known:
        return ReleaseVerdict(ReleaseState.UNKNOWN, "neither memory nor processes can be read")
    basis = "memory" if last.used_mib is not None else "processes"
    busy = _busy(last, floor_mib)
    if busy:
        return ReleaseVerdict(ReleaseState.HELD, busy, basis)
    still_s = last.at - _free_since(samples, floor_mib)
    what = f"{last.used_mib} MiB used" if last.used_mib is not None else "memory reads N/A, no process left"
    if still_s < stable_s:
        return ReleaseVerdict(ReleaseState.SETTLING, f"{what}, free for {still_s:.1f} of {stable_s:g} s", basis)
    return ReleaseVerdict(ReleaseState.RELEASED, what, basis)


def _busy(sample: GpuSample, floor_mib: int) -> str:
    """Say what keeps the GPU busy, "" when nothing does."""
    reasons = []
    if sample.used_mib is not None and sample.used_mib > floor_mib:
        reasons.append(f"{sample.used_mib} MiB used, {floor_mib} MiB is idle")
    if sample.holders:
        reasons.append("held by " + ", ".join(str(holder) for holder in sample.holders))
    return "; ".join(reasons)


def _free_since(samples: Sequence[GpuSample], floor_mib: int) -> float:
    """Return when the last unbroken run of free readings began, all of whose memory lies within a narrow band."""
    last = samples[-1]
    since = last.at
    lowest = highest = last.used_mib
    for sample in reversed(samples):
        same_kind = (sample.used_mib is None) == (last.used_mib is None)
        if not sample.known or not same_kind or _busy(sample, floor_mib):
            break
        if sample.used_mib is not None and lowest is not None and highest is not None:
            lowest, highest = min(lowest, sample.used_mib), max(highest, sample.used_mib)
            if highest - lowest > STABLE_WITHIN_MIB:
                break
        since = sample.at
    return since
