"""A measurement whose records cannot be written says so in words, and ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanectl.errors import LaneError
from lanectl.measure.run import run_profile
from tests.support.measuring import nothing, small

NOWHERE = "http://127.0.0.1:9"  # nothing is asked before the first record is written


@pytest.mark.parametrize(
    ("path", "why"), [("/dev/full", "No space left"), ("/proc/nowhere/raw.jsonl", "No such file or directory")]
)
def test_T47_records_that_cannot_be_written_end_a_measurement(path: str, why: str) -> None:
    with pytest.raises(LaneError, match=why) as failed:
        run_profile(
            base_url=NOWHERE, model="m", profile=small(), raw_path=Path(path), check=lambda: None, progress=nothing
        )
    assert path in failed.value.message
