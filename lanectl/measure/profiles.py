"""What is measured: profiles as data. Each has the same shape, and says in its summary what its numbers are good for.

`general` is the protocol of the published comparison of the lanes gracetier, october and pg61: two sets of 20 general
prompts, 256 new tokens each, greedy, two warm-up passes first, one stream on each set and on the first one again later,
one burst each at 8 and at 32 streams. The published prompts are not public; these are others of the same kinds.
Warm-up has its own prompts, so that nothing measured has been seen by the server before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from lanectl.errors import ExitCode, LaneError
from lanectl.measure.driver import Deadlines

CONNECT_S = 5.0  # the server is on this machine or beside it


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PromptSet:
    """A file of prompts in lanectl/measure/prompts/ and the sha256 of its bytes."""

    file: str
    sha256: str

    def load(self) -> tuple[Prompt, ...]:
        """Return the prompts. Raise LaneError when the file is not the one that this sha256 names."""
        return _load(self)


@dataclass(frozen=True, slots=True)
class Cell:
    """Requests that are measured together.

    One stream: the prompts one after another. More streams: one burst, each stream one request; its prompts are the
    first `requests` of the sets in order, from the start again when they run out.
    """

    id: str
    sets: tuple[PromptSet, ...]
    streams: int
    requests: int

    def prompts(self) -> tuple[Prompt, ...]:
        pool = [prompt for prompts in self.sets for prompt in prompts.load()]
        return tuple(pool[index % len(pool)] for index in range(self.requests))


@dataclass(frozen=True, slots=True)
class Profile:
    """A whole measurement: warm-up passes at one stream, then the cells in order.

    `template_kwargs` (thinking settings) are sent with every request; empty leaves the server's default, and is
    recorded as such. `settle_s` bounds each wait for the server's counters to come to rest.
    """

    name: str
    summary: str
    max_tokens: int
    warmup: Cell
    warmup_passes: int
    cells: tuple[Cell, ...]
    deadlines: Deadlines
    settle_s: float
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


SET_A = PromptSet("a.jsonl", "75dcbf7a6afa1bce9e12850a9a20a4289d20d570797b88ea8966d09af221e3ff")
SET_B = PromptSet("b.jsonl", "00c9e49eb06b7476a27c975bf7e007d307a88e037a1e97a764c0660d2274f02d")
SET_WARMUP = PromptSet("warmup.jsonl", "3608413b34f9bcbd42d644b5edcb96d0aab33731a7da9ae2f6ac50f59a767a3f")

# The cells every profile of this shape has, so that one table shows them all.
ONE_A, ONE_B, BURST_8, BURST_32, ONE_A_AGAIN = "one-a", "one-b", "burst-8", "burst-32", "one-a-again"


def _cells(requests: int) -> tuple[Cell, ...]:
    """The published shape with `requests` prompts a set. Set A again comes last, so that it brackets all the others."""
    return (
        Cell(ONE_A, (SET_A,), 1, requests),
        Cell(ONE_B, (SET_B,), 1, requests),
        Cell(BURST_8, (SET_A, SET_B), 8, 8),
        Cell(BURST_32, (SET_A, SET_B), 32, 32),
        Cell(ONE_A_AGAIN, (SET_A,), 1, requests),
    )


GENERAL = Profile(
    name="general",
    summary="two sets of 20 general prompts, 256 new tokens, greedy",
    max_tokens=256,
    warmup=Cell("warm-up", (SET_WARMUP,), 1, 20),
    warmup_passes=2,
    cells=_cells(20),
    # A lane at 20 tok/s in total needs 410 s for the burst of 32 x 256; first tokens behind a queue can take as long.
    deadlines=Deadlines(CONNECT_S, first_byte_s=300, whole_s=600),
    settle_s=15,
)

QUICK = Profile(
    name="quick",
    summary="the shape of `general` with fewer prompts and tokens: a demonstration, not a measurement to quote",
    max_tokens=96,
    warmup=Cell("warm-up", (SET_WARMUP,), 1, 6),
    warmup_passes=2,
    cells=_cells(6),
    deadlines=Deadlines(CONNECT_S, first_byte_s=30, whole_s=60),
    settle_s=3,
)

PROFILES = {profile.name: profile for profile in (GENERAL, QUICK)}
PROFILE_NAMES: tuple[str, ...] = tuple(PROFILES)


def profile_named(name: str) -> Profile:
    """Return the profile. Raise LaneError (exit 2) naming the known ones."""
    try:
        return PROFILES[name]
    except KeyError:
        raise LaneError(
            f"unknown measurement profile {name!r}",
            hint="known profiles: " + ", ".join(PROFILE_NAMES),
            exit_code=ExitCode.USAGE,
        ) from None


@cache
def _load(prompts: PromptSet) -> tuple[Prompt, ...]:
    data = resources.files("lanectl.measure.prompts").joinpath(prompts.file).read_bytes()
    if hashlib.sha256(data).hexdigest() != prompts.sha256:
        raise LaneError(
            f"the prompts in {prompts.file} are not the ones that this version of lanectl measures with",
            hint="install lanectl again; other prompts are another profile",
        )
    return tuple(Prompt(**json.loads(line)) for line in data.decode().split("\n") if line)
