"""T12: a log item is a part of a line, one byte or a cut at 16 KB; the lines are the same however it is cut."""

from __future__ import annotations

import re
import struct
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lanectl.engine.lines import MAX_LINE_BYTES, STDERR, STDOUT, SYSTEM, FrameSplitter, LineSplitter, LogLines
from lanectl.errors import EngineError

# Bytes in which line ends, multi-byte characters and broken ones are common.
pieces = st.sampled_from(
    [b"a", b"serving", b"\n", b"\r", b"\r\n", "é".encode(), "\U0001f600".encode(), b"\xff", b"\xc3", b" "]
)
texts = st.lists(pieces, max_size=40).map(b"".join)
cuts = st.lists(st.integers(min_value=0, max_value=200), max_size=12)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    points = sorted({0, len(data), *(point % (len(data) + 1) for point in at)})
    return [data[start:end] for start, end in pairwise(points)]


def lines_of(chunks: list[bytes], max_bytes: int = MAX_LINE_BYTES) -> list[str]:
    splitter = LineSplitter(max_bytes)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.end()


def expected_lines(data: bytes) -> list[str]:
    """The definition, on the whole text at once: LF ends a line; a CR does too, but makes no empty ones."""
    ended = re.findall(rb"([^\r\n]*)(\r\n|\n|\r)", data)
    lines = [text for text, end in ended if text or end == b"\n"]
    rest = data[len(b"".join(text + end for text, end in ended)) :]
    return [line.decode("utf-8", "replace") for line in (*lines, *([rest] if rest else []))]


@given(texts, cuts)
@example(b"loading\r\n\r\nserving\r", [8, 9, 10])
def test_T12_lines_do_not_depend_on_where_the_bytes_are_cut(data: bytes, at: list[int]) -> None:
    assert lines_of(cut(data, at)) == lines_of([data]) == expected_lines(data)


@given(texts)
def test_T12_one_byte_at_a_time(data: bytes) -> None:
    assert lines_of([bytes([byte]) for byte in data]) == expected_lines(data)


def test_a_line_comes_as_soon_as_it_ends() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"caf\xc3") == []
    assert splitter.feed(b"\xa9 open\nnext") == ["café open"]
    assert splitter.feed(b"") == []
    assert splitter.end() == ["next"]
    assert splitter.end() == []


def test_a_progress_bar_is_a_line_each_time_it_starts_over() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"\r  0% of shards") == []
    assert splitter.feed(b"\r 50% of shards") == ["  0% of shards"]
    assert splitter.feed(b"\r100% of shards\n") == [" 50% of shards", "100% of shards"]


@given(st.text(alphabet="aé\U0001f600", max_size=60), cuts, st.integers(min_value=4, max_value=9))
def test_an_endless_line_comes_in_bounded_pieces_and_whole_characters(text: str, at: list[int], limit: int) -> None:
    found = lines_of(cut(text.encode(), at), limit)
    assert "".join(found) == text
    assert all(len(piece.encode()) <= limit for piece in found)
    assert found == lines_of([text.encode()], limit)


def test_a_bound_that_no_real_line_meets() -> None:
    line = "x" * MAX_LINE_BYTES
    assert lines_of([line.encode() + b"\n"]) == [line]
    assert lines_of([line.encode() + b"y\n"]) == [line, "y"]


def frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(data)) + data


frames = st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), texts), max_size=8)


@given(frames, cuts)
def test_T12_frames_do_not_depend_on_where_the_bytes_are_cut(sent: list[tuple[int, bytes]], at: list[int]) -> None:
    splitter = FrameSplitter()
    found = [item for chunk in cut(b"".join(frame(*one) for one in sent), at) for item in splitter.feed(chunk)]
    assert found == sent


@pytest.mark.parametrize("header", [b"\x04\0\0\0\0\0\0\1x", b"\x01\0\1\0\0\0\0\1x", b"INFO: started"])
def test_what_is_no_frame_is_refused(header: bytes) -> None:
    with pytest.raises(EngineError, match="frame"):
        FrameSplitter().feed(header)


def test_half_lines_of_two_streams_do_not_run_together() -> None:
    log = LogLines(tty=False)
    assert log.feed(frame(STDOUT, b"ser") + frame(STDERR, b"warning: x\nwarn")) == ["warning: x"]
    assert log.feed(frame(STDOUT, b"ving\n")) == ["serving"]
    assert log.end() == ["warn"]


def test_a_terminal_has_no_frames() -> None:
    log = LogLines(tty=True)
    assert log.feed(b"\x01\0\0\0 plain\r\nnext\r\n") == ["\x01\0\0\0 plain", "next"]


def test_the_daemons_own_message_is_an_error_not_a_line() -> None:
    with pytest.raises(EngineError, match="log file was removed"):
        LogLines(tty=False).feed(frame(SYSTEM, b"error: log file was removed\n"))
