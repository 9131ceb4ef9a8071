"""Progress: plain lines without a terminal, and nothing it does can stop an action."""

from __future__ import annotations

import re

import pytest

from lanectl.cli.live import TICK_EVERY_S, Plain, Steady


class _Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_have_a_time_a_phase_and_no_control_characters() -> None:
    lines: list[str] = []
    plain = Plain(lines.append, _Time())
    plain.phase("BOOTED", "start \x1b[31mred\x1b[0m\rover")
    plain.note("a line\nin two")
    assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in lines] == [
        "BOOTED      start red over",
        "            a line in two",
    ]
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines)


def test_what_goes_on_is_told_every_few_seconds_only() -> None:
    lines: list[str] = []
    time = _Time()
    plain = Plain(lines.append, time)
    plain.phase("READY", "climbing")
    for second in range(21):
        time.now = 100.0 + second
        plain.ticker(f"line {second}")
    told = [line.partition("READY")[2].strip() for line in lines[1:]]
    assert told == [f"{second} s: line {second}" for second in range(int(TICK_EVERY_S), 21, int(TICK_EVERY_S))]


class _ClosedTerminal:
    def phase(self, phase: str, text: str) -> None:
        raise BrokenPipeError

    def note(self, text: str) -> None:
        raise ValueError("I/O operation on closed file")

    def ticker(self, text: str) -> None:
        raise RuntimeError("reentrant call inside a buffered writer")


def test_a_display_that_fails_stops_nothing() -> None:
    steady = Steady(_ClosedTerminal())
    steady.phase("BOOTED", "")
    steady.note("")
    steady.ticker("")


def test_ctrl_c_is_not_swallowed() -> None:
    class Interrupting(_ClosedTerminal):
        def note(self, text: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Steady(Interrupting()).note("")
