"""The key/value cache: one arena of slots, handed out in contiguous runs of blocks, with prefix reuse.

A request gets one run that holds its whole prompt and everything it may generate, so nothing is ever preempted.
Runs are handed out by next fit, so that what a finished request left stays readable as long as possible; a new
request that begins with the same tokens (and the same salt) copies those blocks instead of computing them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lanectl.reference.weights import Floats, Shape

BLOCK_SIZE = 16  # tokens a block; vLLM's default
_ONE_WIDTH = 16  # floats after a value: a one and zeros, so that a row stays a multiple of 16 wide


def bytes_per_token(shape: Shape) -> int:
    """Bytes the cache takes for one token: key, value and its one, float32, in every layer."""
    return shape.layers * (2 * shape.head_dim + _ONE_WIDTH) * 4


def block_keys(tokens: Sequence[int], salt: str) -> list[bytes]:
    """Given a request's tokens and salt, return one key for each full block; a key stands for all tokens up to the
    end of its block and for the salt."""
    keys: list[bytes] = []
    chain = hashlib.sha256(salt.encode(errors="surrogatepass")).digest()  # JSON can carry half a pair
    for end in range(BLOCK_SIZE, len(tokens) + 1, BLOCK_SIZE):
        chain = hashlib.sha256(chain + repr(tokens[end - BLOCK_SIZE : end]).encode()).digest()
        keys.append(chain)
    return keys


class KvCache:
    """Keys (layers, slots, head_dim) and values (layers, slots, head_dim + 16), and who holds which blocks."""

    def __init__(self, shape: Shape, blocks: int) -> None:
        slots = blocks * BLOCK_SIZE
        self.blocks = blocks
        self.used_blocks = 0
        self.keys: Floats = np.zeros((shape.layers, slots, shape.head_dim), np.float32)
        self.values: Floats = np.zeros((shape.layers, slots, shape.head_dim + _ONE_WIDTH), np.float32)
        self._width = shape.head_dim
        self._held: dict[int, int] = {}  # first block -> blocks, for every run in use
        self._next = 0  # where the next search begins
        self._block_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    def write(self, layer: int, slots: NDArray[np.intp], keys: Floats, values: Floats) -> None:
        """Given one slot, key and value a row, keep them."""
        self.keys[layer][slots] = keys
        kept = self.values[layer]
        kept[slots, : self._width] = values
        kept[slots, self._width] = 1.0

    def reserve(self, tokens: int) -> int | None:
        """Given a number of tokens, return the first slot of a run that holds them, or None while there is none."""
        count = -(-tokens // BLOCK_SIZE)
        first = self._free_run(count)
        if first is None:
            return None
        self._held[first] = count
        self._next = first + count
        self.used_blocks += count
        for block in range(first, first + count):
            self._forget(block)
        return first * BLOCK_SIZE

    def release(self, slot: int) -> None:
        """Given the first slot of a run, give the run back. What is in it can be reused until it is handed out."""
        self.used_blocks -= self._held.pop(slot // BLOCK_SIZE)

    def remember(self, slot: int, keys: list[bytes]) -> None:
        """Given the first slot of a run and the keys of its first full blocks, offer these blocks for reuse."""
        for block, key in enumerate(keys, slot // BLOCK_SIZE):
            if key not in self._block_of and block not in self._key_of:
                self._block_of[key] = block
                self._key_of[block] = key

    def reuse(self, slot: int, keys: list[bytes]) -> int:
        """Given the first slot of a run and the keys of a new request's blocks, copy the longest known beginning
        into the run. Return how many tokens were copied."""
        copied = 0
        for key in keys:
            block = self._block_of.get(key)
            if block is None:
                break
            source, target = block * BLOCK_SIZE, slot + copied
            self.keys[:, target : target + BLOCK_SIZE] = self.keys[:, source : source + BLOCK_SIZE]
            self.values[:, target : target + BLOCK_SIZE] = self.values[:, source : source + BLOCK_SIZE]
            copied += BLOCK_SIZE
        return copied

    def _free_run(self, count: int) -> int | None:
        """The first free run of `count` blocks at or after the last one handed out, else from the beginning."""
        gaps = self._gaps()
        for start, end in gaps:
            if end - max(start, self._next) >= count:
                return max(start, self._next)
        return next((start for start, end in gaps if end - start >= count), None)

    def _gaps(self) -> list[tuple[int, int]]:
        """The free runs, (first block, block after the last), in order."""
        gaps = []
        at = 0
        for first in sorted(self._held):
            if first > at:
                gaps.append((at, first))
            at = first + self._held[first]
        if at < self.blocks:
            gaps.append((at, self.blocks))
        return gaps

    def _forget(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._block_of[key]
