"""What the reference engine's two processes say survives any cut of the stream, and wrong faults are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.reference.faults import KINDS, Faults, pieces_of
from lanectl.reference.messages import Abort, BootLine, Unpacker, packed


@given(st.lists(st.text(max_size=40), max_size=8), st.integers(1, 50))
def test_messages_come_out_whole_however_the_stream_is_cut(texts: list[str], size: int) -> None:
    messages = [BootLine(text) for text in texts] + [Abort(3, "stop")]
    stream = b"".join(map(packed, messages))
    unpacker = Unpacker()
    seen = [message for at in range(0, len(stream), size) for message in unpacker.feed(stream[at : at + size])]
    assert seen == messages


@given(st.binary(max_size=60) | st.text(max_size=30).map(str.encode))
def test_pieces_are_the_whole_and_cut_the_first_long_character(data: bytes) -> None:
    pieces = pieces_of(data)
    assert b"".join(pieces) == data
    assert all(pieces)
    first = next((at for at, byte in enumerate(data) if byte >= 0xC0), None)
    if first is not None:
        ends = [len(b"".join(pieces[: count + 1])) for count in range(len(pieces))]
        assert first + 1 in ends


@pytest.mark.parametrize("word", ["nonsense", "hang=x", "exit=1:0", "answer=999", "crlf=1", "boot-delay=-1"])
def test_a_wrong_fault_is_refused_by_name(word: str) -> None:
    with pytest.raises(ValueError, match=word.partition("=")[0]):
        Faults.read([word])


def test_every_fault_can_be_on_with_its_default() -> None:
    faults = Faults.read(list(KINDS))
    assert all(name in faults for name in KINDS)
    assert faults.seconds("boot-delay") == 10.0
    assert faults.coded("exit") == (1, "4")
    assert Faults.read(["exit=0"]).coded("exit") == (0, "4")
    assert Faults.read(["answer=401:/v1"]).coded("answer") == (401, "/v1")


def test_a_fault_that_is_off_does_nothing() -> None:
    faults = Faults.read([])
    assert "hang" not in faults
    assert faults.count("hang") is None
    assert faults.seconds("boot-delay") == 0.0
