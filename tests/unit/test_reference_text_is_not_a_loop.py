"""A greedy text of 256 tokens has at least 50 different ones, so that comparing two texts means something."""

from __future__ import annotations

from functools import cache

from lanectl.reference.messages import Abort, Submit
from lanectl.reference.tokenizer import END, Tokenizer
from tests.support.reference_model import ask, run, scheduler

DISTINCT_AT_LEAST = 50

PROMPTS = (
    "Write a Python function that merges two sorted lists.",
    "SELECT the ten customers with the largest orders of last year.",
    "How do I keep a risotto from getting sticky?",
    "What is the difference between a contract and a promise?",
    "Translate into German: the last train leaves at seven.",
    "A poem about the sea in winter, four lines.",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "Explain photosynthesis to a child.",
    "日本の首都はどこですか。",
    "1, 1, 2, 3, 5, 8, 13,",
    "",
    "Why is the sky blue? " * 20,
)


@cache
def _texts(shape: str, seed: str) -> list[list[int]]:
    tokenizer = Tokenizer()
    submits: list[Submit | Abort] = [
        ask(number, tokenizer.chat([("user", prompt)]), 256) for number, prompt in enumerate(PROMPTS)
    ]
    written = run(scheduler("--shape", shape, "--seed", seed, "--max-model-len", "1024"), {0: submits})
    return [written[number] for number in range(len(PROMPTS))]


def test_every_greedy_text_has_many_different_tokens() -> None:
    for shape, seed in (("small", "0"), ("small", "41"), ("tiny", "0")):
        for prompt, text in zip(PROMPTS, _texts(shape, seed), strict=True):
            assert len(text) == 256, (shape, prompt)  # the end of a turn never comes by itself
            assert END not in text
            assert len(set(text)) >= DISTINCT_AT_LEAST, (shape, prompt, len(set(text)))


def test_two_prompts_get_two_texts() -> None:
    texts = _texts("small", "0")
    assert len({tuple(text[:32]) for text in texts}) == len(texts)


def test_a_text_is_readable() -> None:
    tokenizer = Tokenizer()
    assert all("\ufffd" not in tokenizer.decode(text) for text in _texts("small", "0"))
