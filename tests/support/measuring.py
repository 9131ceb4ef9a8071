"""Small measurements for tests: one request, or a whole profile of the real shape with few and short answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lanectl.measure.client import Endpoint, RequestShape, Stream
from lanectl.measure.driver import Deadlines, run_together
from lanectl.measure.profiles import QUICK, Cell, Profile
from lanectl.measure.record import Asked, RequestRecord, read_capture
from lanectl.measure.results import MeasuredProfile
from lanectl.measure.run import run_profile
from tests.support.mock_engine import MODEL

# Longer than a busy test machine needs for a mock's answer, short enough for tests that wait for it to pass.
PATIENT = Deadlines(connect_s=5, first_byte_s=20, whole_s=30)
FIRST_BYTE_SOON = Deadlines(connect_s=5, first_byte_s=0.4, whole_s=30)
ALL_SOON = Deadlines(connect_s=5, first_byte_s=20, whole_s=0.8)


def small(max_tokens: int = 8, requests: int = 2, deadlines: Deadlines = PATIENT, settle_s: float = 10) -> Profile:
    """The cells of `quick`, with `requests` prompts a set at one stream."""

    def cut(cell: Cell) -> Cell:
        return replace(cell, requests=requests) if cell.streams == 1 else cell

    cells = tuple(cut(cell) for cell in QUICK.cells)
    warmup = cut(QUICK.warmup)
    return replace(QUICK, max_tokens=max_tokens, warmup=warmup, cells=cells, deadlines=deadlines, settle_s=settle_s)


def nothing(*_: Any) -> None: ...


def measure(
    url: str,
    folder: Path,
    profile: Profile | None = None,
    *,
    check: Callable[[], None] = nothing,
    progress: Callable[[str], None] = nothing,
    **options: Any,
) -> MeasuredProfile:
    """Run a profile against a mock engine; the raw records are in folder/raw.jsonl."""
    return run_profile(
        base_url=url,
        model=MODEL,
        profile=profile or small(),
        raw_path=folder / "raw.jsonl",
        check=check,
        progress=progress,
        **options,
    )


def one_request(
    url: str, *, max_tokens: int = 12, deadlines: Deadlines = PATIENT, prompt: str = "Say something."
) -> RequestRecord:
    """Send one request to a mock engine and return its record."""
    stream = Stream(Endpoint.parse(url), RequestShape(MODEL, max_tokens).body(prompt, "5a17"), "request-1")
    run_together([stream], deadlines, nothing)
    return read_capture(Asked("cell", "request-1", "prompt-1", prompt), stream.capture)
