"""A request's tokens, to the bit of their logits, are the same alone and among any others, and on every run."""

from __future__ import annotations

import random

import numpy as np
import pytest

from lanectl.reference.experts import Experts
from lanectl.reference.kv import KvCache
from lanectl.reference.messages import Abort, Submit
from lanectl.reference.model import Model, Rows
from lanectl.reference.tokenizer import Tokenizer
from lanectl.reference.weights import SHAPES, make_expert, make_weights
from tests.support.reference_model import ask, run, scheduler

VOCABULARY = len(Tokenizer())


def prompts(count: int) -> list[list[int]]:
    """Prompts of many lengths, from one token to several steps' worth."""
    dice = random.Random(count)
    return [
        [dice.randrange(5, VOCABULARY) for _ in range(dice.choice([1, 2, 15, 16, 17, 40, 90]))] for _ in range(count)
    ]


@pytest.mark.parametrize("shape", ["tiny", "small"])
def test_alone_and_among_31_others_of_other_lengths_at_other_times(shape: str) -> None:
    crowd = [ask(number, prompt, 24, salt=str(number)) for number, prompt in enumerate(prompts(32))]
    dice = random.Random(7)
    arrivals: dict[int, list[Submit | Abort]] = {}
    for submit in crowd:
        arrivals.setdefault(dice.randrange(12), []).append(submit)
    together = run(scheduler("--shape", shape), arrivals)
    alone = scheduler("--shape", shape)
    for submit in crowd:
        assert run(alone, {0: [submit]})[submit.number] == together[submit.number], len(submit.prompt)


@pytest.mark.parametrize("budget", [1, 7, 16, 1000])
def test_a_prompt_cut_into_any_pieces(budget: int) -> None:
    submits: list[Submit | Abort] = [ask(number, prompt, 8) for number, prompt in enumerate(prompts(6))]
    expected = run(scheduler(), {0: submits})
    assert run(scheduler("--max-num-batched-tokens", str(budget)), {0: submits}) == expected


def test_with_a_prefix_from_the_cache_and_without() -> None:
    prompt = prompts(40)[3] * 5
    engine = scheduler()
    first = run(engine, {0: [ask(1, prompt)]})[1]
    cached: list[int] = []
    again = run(
        engine, {0: [ask(2, prompt)]}, lambda report: cached.extend(a.cached_tokens for a in report.admissions)
    )[2]
    assert cached[0] > 0
    assert again == first


def test_logits_are_equal_to_the_bit_in_any_batch_size() -> None:
    shape = SHAPES["small"]
    model = Model(shape, make_weights(3, shape, 64, 64), Experts(3, shape), np.zeros(64, np.float32))

    def logits(count: int) -> np.ndarray:
        cache = KvCache(shape, 2 * count)
        slots = [slot for _ in range(count) if (slot := cache.reserve(32)) is not None]
        rows = np.zeros((0, 64), np.float32)
        for position in range(20):
            tokens = np.array([(7 * position + row) % 64 for row in range(count)])
            at = np.full(count, position)
            rows = model.forward(Rows(tokens, at, at + np.array(slots), slots), cache, np.arange(count))
        return rows

    many = logits(33)
    for count in (1, 2, 3, 5, 8, 16, 32):
        assert logits(count).tobytes() == many[:count].tobytes(), count


def test_sampled_tokens_follow_the_seed_alone() -> None:
    crowd: list[Submit | Abort] = [
        ask(number, prompt, 12, temperature=1.0, seed=number, top_p=0.9) for number, prompt in enumerate(prompts(8))
    ]
    together = run(scheduler(), {0: crowd})
    assert run(scheduler(), {0: [crowd[5]]})[5] == together[5]
    other = ask(5, prompts(8)[5], 12, temperature=1.0, seed=99, top_p=0.9)
    assert run(scheduler(), {0: [other]})[5] != together[5]


def test_every_expert_counts() -> None:
    """Without the experts that a layer has past half of them, the text soon goes another way."""
    shape = SHAPES["tiny"]
    tokenizer = Tokenizer()
    bias = np.array(tokenizer.head_bias(), np.float32)
    weights = make_weights(0, shape, VOCABULARY, 64)

    class Half(Experts):
        def run(self, layer, x, picked, gate):  # type: ignore[no-untyped-def]
            return super().run(layer, x, picked, np.where(picked < shape.experts // 2, gate, np.float32(0.0)))

    def text(experts: Experts) -> list[int]:
        model, cache, token, written = Model(shape, weights, experts, bias), KvCache(shape, 8), 50, []
        slot = 0
        for at in range(24):
            rows = Rows(np.array([token]), np.array([at]), np.array([slot + at]), [slot])
            token = int(model.forward(rows, cache, np.array([0])).argmax())
            written.append(token)
        return written

    whole = text(Experts(0, shape))
    assert text(Experts(0, shape)) == whole
    assert text(Half(0, shape)) != whole


def test_an_expert_made_alone_is_the_one_made_with_all_others() -> None:
    shape = SHAPES["tiny"]
    experts = Experts(5, shape)
    x = np.ones((1, shape.hidden), np.float32)
    up, down = make_expert(5, shape, 1, 9)
    gated = x[0] @ up
    expected = (np.maximum(gated[: shape.expert_hidden], 0) * gated[shape.expert_hidden :]) @ down
    got = experts.run(1, x, np.array([[9]]), np.ones((1, 1), np.float32))
    assert np.allclose(got[0], expected, rtol=1e-5)
