"""Making the engine: weights, cache, a warm-up, and the lines of the boot log with their true numbers."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from lanectl.reference.bootlog import kv_cache_line, loaded_line, memory_line
from lanectl.reference.kv import BLOCK_SIZE, KvCache, bytes_per_token
from lanectl.reference.messages import Sampling, Submit
from lanectl.reference.model import Model
from lanectl.reference.placements import PlacementError, make_experts
from lanectl.reference.rowmap import RowMap, RowMapError, read_rowmap
from lanectl.reference.scheduler import Scheduler
from lanectl.reference.tokenizer import BEGIN, Tokenizer
from lanectl.reference.weights import SHAPES, Shape, make_weights

_WARM_UP = Submit(0, [BEGIN], 8, Sampling(ignore_eos=True), "")  # less than a block: it leaves no prefix to hit

Say = Callable[[str], None]


class BootError(Exception):
    """The engine cannot be made with these settings."""


def make_scheduler(settings: argparse.Namespace, say: Say) -> tuple[Scheduler, dict[str, str]]:
    """Given the settings and who writes the boot log, return a warm scheduler and the cache's configuration as
    /metrics shows it. Raise BootError."""
    model = _model(settings, say)
    began = time.monotonic()
    cache = _cache(settings, say)
    scheduler = Scheduler(model, cache, settings.max_num_seqs, settings.max_num_batched_tokens)
    scheduler.submit(_WARM_UP)
    while scheduler.busy:
        scheduler.step()
    say(f"init engine (create kv cache, warmup model) took {time.monotonic() - began:.2f} s")
    return scheduler, _cache_config(settings, cache)


def _model(settings: argparse.Namespace, say: Say) -> Model:
    shape = SHAPES[settings.shape]
    say(f"Starting to load model {settings.served_model_name[0]}...")
    began = time.monotonic()
    tokenizer = Tokenizer()
    weights = make_weights(settings.seed, shape, len(tokenizer), settings.max_model_len)
    try:
        rowmap = _rowmap(settings, shape, say)
        experts = make_experts(settings, shape, rowmap)
    except (RowMapError, PlacementError) as problem:
        raise BootError(str(problem)) from None
    say(
        f"Experts: {shape.layers} layers, {shape.experts} experts a layer, "
        f"{experts.resident} resident a layer, {shape.picked} picked a token"
    )
    say(loaded_line(weights.nbytes + experts.nbytes, time.monotonic() - began))
    return Model(shape, weights, experts, np.array(tokenizer.head_bias(), np.float32))


def _rowmap(settings: argparse.Namespace, shape: Shape, say: Say) -> RowMap | None:
    if settings.rowmap is None:
        return None
    rowmap = read_rowmap(settings.rowmap, shape)
    say(rowmap.line)
    return rowmap


def _cache(settings: argparse.Namespace, say: Say) -> KvCache:
    shape = SHAPES[settings.shape]
    blocks = settings.kv_cache_memory_bytes // (bytes_per_token(shape) * BLOCK_SIZE)
    tokens = blocks * BLOCK_SIZE
    say(memory_line(settings.kv_cache_memory_bytes))
    if tokens < settings.max_model_len:
        raise BootError(
            f"max seq len ({settings.max_model_len}) is larger than the maximum number of tokens that can be stored "
            f"in KV cache ({tokens}). Try increasing `--kv-cache-memory-bytes` or decreasing `--max-model-len`."
        )
    say(kv_cache_line(settings.device_word, tokens, settings.max_model_len))
    return KvCache(shape, blocks)


def _cache_config(settings: argparse.Namespace, cache: KvCache) -> dict[str, str]:
    tokens = cache.blocks * BLOCK_SIZE
    return {
        "block_size": str(BLOCK_SIZE),
        "cache_dtype": "float32",
        "enable_prefix_caching": "True",
        "kv_cache_max_concurrency": str(tokens / settings.max_model_len),
        "kv_cache_memory_bytes": str(settings.kv_cache_memory_bytes),
        "kv_cache_size_tokens": str(tokens),
        "num_gpu_blocks": str(cache.blocks),
        "prefix_caching_hash_algo": "sha256",
    }
