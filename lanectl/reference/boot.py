"""Making the engine: weights, cache, a warm-up, and the lines of the boot log with their true numbers."""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable

import numpy as np

from lanectl.reference import VERSION
from lanectl.reference.bootlog import Log, kv_cache_line, loaded_line, memory_line
from lanectl.reference.events import EventStream
from lanectl.reference.experts import Experts
from lanectl.reference.http import Exchange
from lanectl.reference.kv import BLOCK_SIZE, KvCache, bytes_per_token
from lanectl.reference.metrics import Metrics
from lanectl.reference.model import Model
from lanectl.reference.sampling import Sampling
from lanectl.reference.scheduler import Request, Scheduler
from lanectl.reference.service import Identity, Service
from lanectl.reference.tokenizer import BEGIN, Tokenizer
from lanectl.reference.weights import SHAPES, make_weights

_WARM_UP_TOKENS = 8  # less than a cache block, so that the warm-up leaves nothing for a prefix to hit


class BootError(Exception):
    """The engine cannot be made with these settings."""


def make(
    settings: argparse.Namespace, log: Log, open_stream: Callable[[Exchange], EventStream]
) -> tuple[Scheduler, Service]:
    """Given the settings, return a warm scheduler and the service in front of it. Raise BootError."""
    tokenizer = Tokenizer()
    model = _model(settings, tokenizer, log)
    cache = _cache(settings, log)
    began = time.monotonic()
    scheduler = Scheduler(model, cache, settings.max_num_seqs, settings.max_num_batched_tokens)
    scheduler.submit(Request([BEGIN], _WARM_UP_TOKENS, Sampling(ignore_eos=True)))
    while scheduler.busy:
        scheduler.step()
    log.engine("boot", f"init engine (create kv cache, warmup model) took {time.monotonic() - began:.2f} s")
    identity = Identity(
        names=settings.served_model_name,
        max_model_len=settings.max_model_len,
        fingerprint=_fingerprint(settings, cache.blocks),
        started=int(time.time()),
        api_keys=settings.api_key,
    )
    metrics = Metrics(settings.served_model_name[0], _cache_config(settings, cache), time.time())
    return scheduler, Service(identity, tokenizer, metrics, open_stream)


def _model(settings: argparse.Namespace, tokenizer: Tokenizer, log: Log) -> Model:
    shape = SHAPES[settings.shape]
    log.engine("boot", f"Starting to load model {settings.served_model_name[0]}...")
    began = time.monotonic()
    weights = make_weights(settings.seed, shape, len(tokenizer), settings.max_model_len)
    experts = Experts(settings.seed, shape)
    log.engine(
        "boot",
        f"Experts: {shape.layers} layers, {shape.experts} experts a layer, "
        f"{experts.resident} resident a layer, {shape.picked} picked a token",
    )
    log.engine("boot", loaded_line(weights.nbytes + experts.nbytes, time.monotonic() - began))
    return Model(shape, weights, experts, np.array(tokenizer.head_bias(), np.float32))


def _cache(settings: argparse.Namespace, log: Log) -> KvCache:
    shape = SHAPES[settings.shape]
    blocks = settings.kv_cache_memory_bytes // (bytes_per_token(shape) * BLOCK_SIZE)
    tokens = blocks * BLOCK_SIZE
    log.engine("boot", memory_line(settings.kv_cache_memory_bytes))
    log.engine("boot", kv_cache_line(settings.device_word, tokens, settings.max_model_len))
    if tokens < settings.max_model_len:
        raise BootError(
            f"max seq len ({settings.max_model_len}) is larger than the maximum number of tokens that can be stored "
            f"in KV cache ({tokens}). Try increasing `--kv-cache-memory-bytes` or decreasing `--max-model-len`."
        )
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


def _fingerprint(settings: argparse.Namespace, blocks: int) -> str:
    """The same for two servers that would give the same answers at the same speed."""
    parts = (settings.seed, settings.shape, settings.max_model_len, settings.max_num_seqs, blocks)
    return f"reference-{VERSION}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"
