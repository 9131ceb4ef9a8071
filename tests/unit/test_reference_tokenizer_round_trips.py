"""The reference engine's tokenizer gives every text back as it was, and makes no special token out of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.reference.tokenizer import ASSISTANT, BEGIN, END, SYSTEM, USER, Tokenizer

TOKENIZER = Tokenizer()
SPECIALS = {BEGIN, END, SYSTEM, USER, ASSISTANT}
TEXTS = st.text() | st.sampled_from(
    [" the river", "naïve café — 日本 😀…", "\u2028\u2029\x85", "def f(x):\n    return {}"]
)


@given(TEXTS)
def test_any_text_comes_back(text: str) -> None:
    tokens = TOKENIZER.encode(text)
    assert TOKENIZER.decode(tokens) == text
    assert not SPECIALS & set(tokens)
    assert all(token < len(TOKENIZER) for token in tokens)


@given(TEXTS)
def test_a_stream_gives_the_same_text_and_never_half_a_character(text: str) -> None:
    stream = TOKENIZER.stream()
    pieces = [stream.push(token) for token in TOKENIZER.encode(text)]
    assert "".join(pieces) + stream.flush() == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_of_several_tokens_comes_out_whole_with_its_last_one() -> None:
    tokens = TOKENIZER.encode("ç")  # not a piece of its own: two single bytes
    assert len(tokens) == 2
    stream = TOKENIZER.stream()
    assert [stream.push(token) for token in tokens] == ["", "ç"]


def test_an_unfinished_character_is_told_at_the_end() -> None:
    stream = TOKENIZER.stream()
    assert stream.push(TOKENIZER.encode("ç")[0]) == ""
    assert stream.flush() == "\ufffd"


def test_words_cost_fewer_tokens_than_bytes() -> None:
    text = "the people of the great state read under the light of the moon"
    assert len(TOKENIZER.encode(text)) < len(text) / 2


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert TOKENIZER.decode(TOKENIZER.encode("a\ud800b")) == "a?b"


def test_the_chat_template_marks_every_turn_and_asks_for_the_next() -> None:
    prompt = TOKENIZER.chat([("system", "be"), ("user", "hi"), ("assistant", "yo"), ("user", "so")])
    hi = TOKENIZER.encode("hi")
    assert prompt[0] == BEGIN
    assert prompt[-1] == ASSISTANT
    assert [token for token in prompt if token in SPECIALS] == [
        *(BEGIN, SYSTEM, END, USER, END, ASSISTANT, END, USER, END, ASSISTANT)
    ]
    start = prompt.index(USER) + 1
    assert prompt[start : start + len(hi)] == hi
    with pytest.raises(KeyError):
        TOKENIZER.chat([("nobody", "hi")])


def test_the_vocabulary_has_no_two_tokens_of_one_text_and_fills_whole_registers() -> None:
    texts = [TOKENIZER.decode([token]) for token in range(len(TOKENIZER)) if token not in SPECIALS]
    readable = [text for text in texts if text != "\ufffd"]
    assert len(readable) == len(set(readable))
    assert len(TOKENIZER) % 16 == 0  # no matrix row ends in a partly filled vector register
    assert len(TOKENIZER.head_bias()) == len(TOKENIZER)
