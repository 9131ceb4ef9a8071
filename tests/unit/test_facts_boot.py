"""Boot facts: the value a log line holds, and what the spec demands of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.core.facts import FactValue, problems, read_value, unseen
from lanectl.core.lane import Fact

KV = re.compile(r"GPU KV cache size: ([\d,]+) tokens")


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (KV, "INFO [kv.py:12] GPU KV cache size: 2,540,000 tokens, Maximum concurrency", 2540000.0),
        (KV, "\x1b[36m(EngineCore pid=7)\x1b[0m GPU KV cache size: 512 tokens", 512.0),
        (KV, "GPU KV cache usage: 1%", None),
        (re.compile(r"memory: ([\d.]+) GiB"), "Available KV cache memory: 71.25 GiB", 71.25),
        (re.compile("Decoder SWA bounded replay"), "x Decoder SWA bounded replay y", "x Decoder SWA bounded replay y"),
        (re.compile(r"format: (\w+)"), "KV cache format: fp8", "fp8"),
        (re.compile(r"sizes: ([\d,]+)"), "sizes: 1,2,4", "1,2,4"),
        (re.compile(r"replay(ed)?"), "replay", "replay"),
    ],
)
def test_the_value_a_line_holds(pattern: re.Pattern[str], line: str, expected: FactValue) -> None:
    assert read_value(pattern, line) == expected


@given(st.integers(0, 10**12))
def test_thousands_commas_never_change_a_number(number: int) -> None:
    assert read_value(KV, f"GPU KV cache size: {number:,} tokens") == float(number)
    assert read_value(KV, f"GPU KV cache size: {number} tokens") == float(number)


@pytest.mark.parametrize(
    ("fact", "value", "complaint"),
    [
        (Fact("kv", "x"), None, None),
        (Fact("kv", "x"), 1.0, None),
        (Fact("kv", "x", required=True), "a line", None),
        (Fact("kv", "x", required=True), None, "no log line"),
        (Fact("kv", "x", at_least=2400000), 2400000.0, None),
        (Fact("kv", "x", at_least=2400000), 2399999.0, "2,399,999 is less than at_least 2,400,000"),
        (Fact("kv", "x", at_least=1), None, "no log line"),
        (Fact("kv", "x", at_least=1), "fp8", "not a number"),
        (Fact("kv", "x", at_most=5), 5.0, None),
        (Fact("kv", "x", at_most=5), 5.5, "5.5 is more than at_most 5"),
    ],
)
def test_what_the_spec_demands(fact: Fact, value: FactValue, complaint: str | None) -> None:
    found = problems((fact,), {"kv": value})
    assert (complaint is None) == (found == ())
    assert complaint is None or complaint in found[0]


def test_unseen_names_only_what_is_demanded() -> None:
    facts = (Fact("nice", "x"), Fact("kv", "x", at_least=1), Fact("replay", "x", required=True))
    assert unseen(facts, {"nice": None, "kv": None, "replay": "there"}) == ("kv",)
