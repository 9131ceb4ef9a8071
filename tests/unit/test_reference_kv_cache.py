"""The reference engine's cache: runs never overlap, nothing is lost, and only equal beginnings are reused."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lanectl.reference.kv import BLOCK_SIZE, KvCache, block_keys, bytes_per_token
from lanectl.reference.weights import SHAPES

SHAPE = SHAPES["tiny"]
BLOCKS = 20


@given(st.lists(st.integers(1, 8 * BLOCK_SIZE) | st.just(0), max_size=60))
def test_runs_never_overlap_and_everything_comes_back(moves: list[int]) -> None:
    """A positive move reserves that many tokens, a zero gives the oldest run back."""
    cache = KvCache(SHAPE, BLOCKS)
    held: dict[int, int] = {}
    for tokens in moves:
        if tokens == 0:
            if held:
                slot = next(iter(held))
                cache.release(slot)
                del held[slot]
            continue
        slot = cache.reserve(tokens)
        blocks = -(-tokens // BLOCK_SIZE)
        if slot is None:
            taken = sorted((start // BLOCK_SIZE, start // BLOCK_SIZE + count) for start, count in held.items())
            edges = [0, *(edge for run in taken for edge in run), BLOCKS]
            assert all(end - start < blocks for start, end in zip(edges[::2], edges[1::2], strict=True))
            continue
        held[slot] = blocks
        spans = sorted((start, start + count * BLOCK_SIZE) for start, count in held.items())
        assert spans[-1][1] <= BLOCKS * BLOCK_SIZE
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
        assert cache.used_blocks == sum(held.values())


def filled(cache: KvCache, slot: int, count: int) -> None:
    """Write numbers that tell which token they belong to."""
    for layer in range(SHAPE.layers):
        mark = np.repeat(np.arange(count, dtype=np.float32)[:, None] + 100 * layer, SHAPE.head_dim, axis=1)
        cache.write(layer, slot + np.arange(count), mark, -mark)


def test_an_equal_beginning_is_copied_block_by_block() -> None:
    cache = KvCache(SHAPE, BLOCKS)
    tokens = list(range(3 * BLOCK_SIZE + 5))
    first = cache.reserve(len(tokens))
    assert first is not None
    filled(cache, first, len(tokens))
    cache.remember(first, block_keys(tokens, "salt"))
    second = cache.reserve(len(tokens))
    assert second is not None
    other_end = [*tokens[: 2 * BLOCK_SIZE], *[7] * 30]
    assert cache.reuse(second, block_keys(other_end, "salt")) == 2 * BLOCK_SIZE
    whole = slice(second, second + 2 * BLOCK_SIZE)
    assert np.array_equal(cache.keys[:, whole], cache.keys[:, first : first + 2 * BLOCK_SIZE])
    assert np.array_equal(cache.values[:, whole], cache.values[:, first : first + 2 * BLOCK_SIZE])
    assert cache.values[1, second + 3, 0] == -103.0


def test_another_salt_or_another_first_token_finds_nothing() -> None:
    cache = KvCache(SHAPE, BLOCKS)
    tokens = list(range(2 * BLOCK_SIZE))
    slot = cache.reserve(len(tokens)) or 0
    cache.remember(slot, block_keys(tokens, "a"))
    target = cache.reserve(len(tokens)) or 0
    assert cache.reuse(target, block_keys(tokens, "b")) == 0
    assert cache.reuse(target, block_keys([99, *tokens[1:]], "a")) == 0
    assert cache.reuse(target, block_keys(tokens, "a")) == 2 * BLOCK_SIZE


def test_what_was_released_is_reused_until_its_blocks_are_handed_out_again() -> None:
    cache = KvCache(SHAPE, 4)
    tokens = list(range(BLOCK_SIZE))
    slot = cache.reserve(BLOCK_SIZE) or 0
    cache.remember(slot, block_keys(tokens, ""))
    cache.release(slot)
    target = cache.reserve(BLOCK_SIZE)
    assert target is not None
    assert target != slot
    assert cache.reuse(target, block_keys(tokens, "")) == BLOCK_SIZE
    cache.release(target)
    everything = cache.reserve(4 * BLOCK_SIZE)
    assert everything == 0
    assert cache.reuse(everything, block_keys(tokens, "")) == 0


def test_a_token_costs_what_the_arrays_cost() -> None:
    cache = KvCache(SHAPE, BLOCKS)
    assert cache.keys.nbytes + cache.values.nbytes == BLOCKS * BLOCK_SIZE * bytes_per_token(SHAPE)
