"""What is read from log lines: patterns behind colours and progress bars, and the line that names the cause."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.core.log_lines import last_words, one_line, search

FATAL = (re.compile("EngineCore failed"), re.compile("^Traceback"))


@pytest.mark.parametrize(
    "line",
    [
        "serving",
        "serving on 4 layers",
        "\x1b[1;36mserving\x1b[0;0m",
        "prepared  99%\rprepared 100%\rserving",
    ],
)
def test_a_marker_is_found_behind_colours_and_progress_bars(line: str) -> None:
    assert search(re.compile("^serving"), line)


@pytest.mark.parametrize("line", ["not serving", "ser\rving", ""])
def test_a_marker_is_not_found_where_it_is_not(line: str) -> None:
    assert search(re.compile("^serving"), line) is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], ""),
        (["loading", ""], "loading"),
        (
            ["OSError: no model", "(APIServer) EngineCore failed to start", "bye"],
            "(APIServer) EngineCore failed to start",
        ),
        (["Traceback (most recent call last):", '  File "x.py"', "OSError: no model", "bye"], "OSError: no model"),
        (["(EngineCore pid=7) ERROR torch.cuda.OutOfMemoryError: 2 GiB", "bye"], None),
        (["Traceback (most recent call last):"], "Traceback (most recent call last):"),
        (["KeyboardInterrupt", "bye"], "KeyboardInterrupt"),
        (
            ["ValueError: unknown flag", "RuntimeError: Engine core initialization failed. See root cause above."],
            "ValueError: unknown flag",
        ),
        (["RuntimeError: it failed. See root cause above."], "RuntimeError: it failed. See root cause above."),
    ],
)
def test_the_last_words_name_the_cause(lines: list[str], expected: str | None) -> None:
    assert last_words(lines, FATAL) == (lines[0] if expected is None else expected)


@given(st.text(), st.integers(2, 400))
def test_any_text_becomes_one_printable_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in line)
