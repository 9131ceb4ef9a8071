"""Global options mean the same wherever they stand, and words that only look like them are left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.cli.options import command_of, hoist, json_wanted

PLACED = st.sampled_from([["--json"], ["-v"], ["--verbose"], ["--site", "/s"], ["--site=/s"]])
PLAIN = st.sampled_from(["swap", "gracetier", "--measure", "--keep", "-n", "3", "lanes", "list"])


@given(words=st.lists(PLAIN, max_size=5), options=st.lists(PLACED, max_size=3), data=st.data())
def test_global_options_come_first_and_nothing_else_moves(
    words: list[str], options: list[list[str]], data: st.DataObject
) -> None:
    mixed = list(words)
    places = sorted((data.draw(st.integers(0, len(words))) for _ in options), reverse=True)
    for place, option in zip(places, reversed(options), strict=True):
        mixed[place:place] = option
    assert hoist(mixed) == [*(word for option in options for word in option), *words]


def test_what_follows_two_dashes_stays_where_it_is() -> None:
    assert hoist(["logs", "--", "--json"]) == ["logs", "--", "--json"]
    assert not json_wanted(["logs", "--", "--json"])
    assert json_wanted(["logs", "--json", "--", "x"])


def test_a_site_without_its_directory_is_left_for_the_parser_to_refuse() -> None:
    assert hoist(["status", "--site"]) == ["status", "--site"]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["status"], "status"),
        (["--json", "--site", "/s", "swap", "x"], "swap"),
        (["--site=/s", "-v", "lanes", "list"], "lanes"),
        (["--help"], None),
        (["--site", "/s"], None),
        ([], None),
    ],
)
def test_the_command_is_found_behind_global_options(words: list[str], command: str | None) -> None:
    assert command_of(words) == command
