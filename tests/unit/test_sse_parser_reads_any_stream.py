"""The event parser returns the same events however the network cuts the stream, and changes no byte of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.measure.sse import Event, SseParser


def parse(*pieces: bytes) -> list[Event]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def data(*pieces: bytes) -> list[bytes]:
    return [event.data for event in parse(*pieces)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_every_line_end_ends_lines_and_events(end: bytes) -> None:
    assert data(b"data: a" + end + end + b"data: b" + end + end) == [b"a", b"b"]


def test_two_crlf_events_in_one_read_are_two_events() -> None:
    assert data(b"data: a\r\n\r\ndata: b\r\n\r\n") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data:x\n\n", [Event(b"x")]),
        (b"data: x\n\n", [Event(b"x")]),
        (b"data:  x \n\n", [Event(b" x ")]),
        (b"data: one\ndata: two\n\n", [Event(b"one\ntwo")]),
        (b"data\n\n", [Event(b"")]),
        (b": keep-alive\n\n", []),
        (b": keep-alive\ndata: x\n\n", [Event(b"x")]),
        (b"event: error\ndata: x\n\ndata: y\n\n", [Event(b"x", b"error"), Event(b"y")]),
        (b"event: lonely\n\ndata: y\n\n", [Event(b"y")]),
        (b"id: 7\nretry: 10\nother: z\ndata: x\n\n", [Event(b"x")]),
        (b"\xef\xbb\xbfdata: x\n\n", [Event(b"x")]),
        (b"data: \xe2\x80\xa8\xe2\x80\xa9\xc2\x85\n\n", [Event("\u2028\u2029\x85".encode())]),
        (b"data: a\x0bb\x0cc\x1cd\n\n", [Event(b"a\x0bb\x0cc\x1cd")]),
        (b"data: never ended\n", []),
        (b"data: never ended", []),
        (b"\n\n\n", []),
        (b"", []),
    ],
)
def test_each_trap_of_the_format(stream: bytes, events: list[Event]) -> None:
    assert parse(stream) == events
    assert parse(*(bytes([byte]) for byte in stream)) == events


def test_a_space_at_a_read_boundary_survives() -> None:
    assert data(b'data: {"content":"hello', b" world", b' foo"}\n\n') == [b'{"content":"hello world foo"}']


def test_an_event_is_complete_at_the_read_that_brought_its_empty_line() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\n") == []
    assert parser.feed(b"\r") == [Event(b"a")]
    assert parser.feed(b"\ndata: b\r\n\r\n") == [Event(b"b")]


PAYLOAD = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])).map(str.encode)
LINE_END = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[Event]]:
    """A stream of events in every legal spelling, and the events themselves."""
    stream, events = b"", []
    for lines in draw(st.lists(st.lists(PAYLOAD, min_size=1, max_size=3), max_size=5)):
        end = draw(LINE_END)
        if draw(st.booleans()):
            stream += b": " + draw(PAYLOAD) + end
        name = draw(st.sampled_from([b"", b"error", b"message"]))
        if name:
            stream += b"event:" + draw(st.sampled_from([b"", b" "])) + name + end
        for line in lines:
            stream += b"data: " + line + end
        stream += end
        events.append(Event(b"\n".join(lines), name))
    return stream, events


@given(streams(), st.data())
def test_any_cut_of_any_stream_gives_the_events_that_were_written(
    written: tuple[bytes, list[Event]], choose: st.DataObject
) -> None:
    stream, events = written
    cuts = sorted(choose.draw(st.sets(st.integers(0, len(stream)), max_size=20)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert parse(*pieces) == events
