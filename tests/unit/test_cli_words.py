"""Times in words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.cli.words import ago, duration
from lanectl.site.quantities import MAX_DURATION_S, parse_duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0ms"), (0.2, "200ms"), (2, "2s"), (120, "2m"), (630, "10m30s"), (14400, "4h"), (90061.5, "1d1h1m1.5s")],
)
def test_a_duration_is_written_as_a_spec_has_it(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@given(st.integers(min_value=1, max_value=int(MAX_DURATION_S) * 1000))
def test_a_written_duration_is_read_back_as_it_was(milliseconds: int) -> None:
    assert parse_duration(duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, abs=0.0006)


NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2026-03-01T11:59:58.500Z", "2026-03-01T11:59:58.500Z (1 s ago)"),
        ("2026-03-01T11:00:00Z", "2026-03-01T11:00:00Z (1 h ago)"),
        ("2026-02-26T11:00:00Z", "2026-02-26T11:00:00Z (3 d ago)"),
        ("2026-03-01T12:00:01Z", "2026-03-01T12:00:01Z"),  # a clock that was set back
        ("2026-03-01T11:00:00", "2026-03-01T11:00:00"),  # no zone: not comparable
        ("yesterday", "yesterday"),
        ("", ""),
    ],
)
def test_how_long_ago_is_said_only_where_it_can_be_told(at: str, words: str) -> None:
    assert ago(at, NOW) == words
