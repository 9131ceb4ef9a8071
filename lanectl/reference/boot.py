"""Making the engine: weights, cache, a warm-up, and the lines of the boot log with their true numbers."""

from __future__ import annotations

import argparse
import os
import time
from typing import NamedTuple

import numpy as np

from lanectl.reference.audit import ByteAudit
from lanectl.reference.bootlog import EngineLog, kv_cache_line, loaded_line, memory_line
from lanectl.reference.experts import Experts
from lanectl.reference.faults import Faults
from lanectl.reference.kv import BLOCK_SIZE, KvCache, bytes_per_token
from lanectl.reference.messages import Sampling, Submit
from lanectl.reference.model import Model
from lanectl.reference.placements import ADAPTIVE, PlacementError, make_experts
from lanectl.reference.residency import Residency
from lanectl.reference.rowmap import RowMap, RowMapError, read_rowmap
from lanectl.reference.scheduler import Scheduler
from lanectl.reference.tally import VARIABLE as COUNTS_VARIABLE
from lanectl.reference.tally import Tally
from lanectl.reference.tiers import TieredExperts
from lanectl.reference.tokenizer import BEGIN, Tokenizer
from lanectl.reference.weights import SHAPES, Shape, make_weights

_WARM_UP = Submit(0, [BEGIN], 8, Sampling(ignore_eos=True), "")  # less than a block: it leaves no prefix to hit


class BootError(Exception):
    """The engine cannot be made with these settings."""


class Booted(NamedTuple):
    """An engine that is ready: its warm scheduler, the cache's configuration as /metrics shows it, the byte audit,
    who counts picks (None when nobody needs to know) and who swaps experts (None when nobody does)."""

    scheduler: Scheduler
    cache_config: dict[str, str]
    audit: ByteAudit
    tally: Tally | None
    residency: Residency | None


def boot_engine(settings: argparse.Namespace, log: EngineLog, faults: Faults) -> Booted:
    """Given the settings, where lines go and the faults, boot. Raise BootError."""
    shape = SHAPES[settings.shape]
    log.engine(f"Starting to load model {settings.served_model_name[0]}...")
    began = time.monotonic()
    try:
        rowmap = _rowmap(settings, shape, log)
        experts = make_experts(settings, shape, rowmap, log)
    except (RowMapError, PlacementError) as problem:
        raise BootError(str(problem)) from None
    counted = settings.placement in ADAPTIVE or os.environ.get(COUNTS_VARIABLE)
    tally = Tally(shape) if counted else None
    model = _model(settings, experts, tally, log, began)
    began = time.monotonic()
    cache = _cache(settings, log)
    residency = None
    if settings.placement in ADAPTIVE:
        assert isinstance(experts, TieredExperts)
        assert rowmap is not None
        assert tally is not None
        residency = Residency(experts, rowmap, shape, tally, settings.hysteresis, faults.count("corrupt-move"))
    audit = ByteAudit(experts, shape)
    _warm_up(Scheduler(model, cache, settings.max_num_seqs, settings.max_num_batched_tokens))
    if tally is not None:
        tally.counts[:] = 0  # a warm-up is no traffic
    log.engine(f"init engine (create kv cache, warmup model) took {time.monotonic() - began:.2f} s")
    scheduler = Scheduler(model, cache, settings.max_num_seqs, settings.max_num_batched_tokens, residency)
    return Booted(scheduler, _cache_config(settings, cache), audit, tally, residency)


def _warm_up(scheduler: Scheduler) -> None:
    scheduler.submit(_WARM_UP)
    while scheduler.busy:
        scheduler.step()


def _rowmap(settings: argparse.Namespace, shape: Shape, log: EngineLog) -> RowMap | None:
    if settings.rowmap is None:
        return None
    rowmap = read_rowmap(settings.rowmap, shape)
    log.engine(rowmap.line)
    return rowmap


def _model(settings: argparse.Namespace, experts: Experts, tally: Tally | None, log: EngineLog, began: float) -> Model:
    shape = SHAPES[settings.shape]
    tokenizer = Tokenizer()
    weights = make_weights(settings.seed, shape, len(tokenizer), settings.max_model_len)
    log.engine(
        f"Experts: {shape.layers} layers, {shape.experts} experts a layer, "
        f"{experts.resident} resident a layer, {shape.picked} picked a token"
    )
    log.engine(f"Expert placement {settings.placement}: {experts.places}")
    log.engine(loaded_line(weights.nbytes + experts.nbytes, time.monotonic() - began))
    return Model(shape, weights, experts, np.array(tokenizer.head_bias(), np.float32), tally)


def _cache(settings: argparse.Namespace, log: EngineLog) -> KvCache:
    shape = SHAPES[settings.shape]
    blocks = settings.kv_cache_memory_bytes // (bytes_per_token(shape) * BLOCK_SIZE)
    tokens = blocks * BLOCK_SIZE
    log.engine(memory_line(settings.kv_cache_memory_bytes))
    if tokens < settings.max_model_len:
        raise BootError(
            f"max seq len ({settings.max_model_len}) is larger than the maximum number of tokens that can be stored "
            f"in KV cache ({tokens}). Try increasing `--kv-cache-memory-bytes` or decreasing `--max-model-len`."
        )
    log.engine(kv_cache_line(settings.device_word, tokens, settings.max_model_len))
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
