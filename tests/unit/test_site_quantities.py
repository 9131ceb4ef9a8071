"""Durations and sizes: what is accepted means exactly what it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.site.quantities import MAX_DURATION_S, MAX_SIZE, parse_duration, parse_size, to_mib


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2s", 2),
        ("500ms", 0.5),
        ("10m30s", 630),
        ("1h", 3600),
        ("1d", 86400),
        ("1d2h3m4s5ms", 93784.005),
        ("1.5s", 1.5),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "2", "s", "2S", "2sec", "2 s", "-2s", "+2s", "2s2s", "2s1m", "1e3s", "٢s", "2m for 2s", "9" * 400 + "s"],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("67108864", 67108864),
        ("1B", 1),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("8192MiB", 8192 * 2**20),
        ("8192MB", 8192 * 10**6),
        ("74GiB", 74 * 2**30),
        ("74 GB", 74 * 10**9),
        ("1.5GiB", 3 * 2**29),
        ("1TiB", 2**40),
    ],
)
def test_sizes_keep_decimal_and_binary_apart(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "m", "64m", "64g", "64M", "64mib", "-1", "1e3", "1 000", "0.3B", "1.5", "9" * 400, "9" * 400 + "TiB", "٢GB"],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_size(text)


def test_mib_are_rounded_up() -> None:
    assert [to_mib(size) for size in (0, 1, 2**20, 2**20 + 1)] == [0, 1, 1, 2]


def value_or_reason(parse: Callable[[str], float], text: str) -> float | str:
    try:
        return parse(text)
    except ValueError as error:
        return str(error)


@given(st.text(max_size=20) | st.from_regex(r"[0-9.]{1,30} ?[a-zA-Z]{0,4}", fullmatch=True))
def test_any_text_is_a_quantity_within_bounds_or_a_reason_why_not(text: str) -> None:
    for parse, most in ((parse_duration, MAX_DURATION_S), (parse_size, MAX_SIZE)):
        answer = value_or_reason(parse, text)
        assert answer if isinstance(answer, str) else 0 <= answer <= most


@given(st.integers(0, 29), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_a_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, seconds: int, millis: int) -> None:
    expected = ((days * 24 + hours) * 60 + minutes) * 60 + seconds + millis / 1000
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s{millis}ms") == pytest.approx(expected)
