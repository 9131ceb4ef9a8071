"""The server's log: the lines vLLM and uvicorn write while booting, with this engine's own true numbers."""

from __future__ import annotations

import os
import time
from typing import Protocol

_GIB = 1024**3
_STDOUT = 1  # the descriptor: what the server logs goes out unbuffered


class EngineLog(Protocol):
    """Where the engine's lines go."""

    def engine(self, message: str) -> None:
        """A line of the engine's, as vLLM's logger writes it."""

    def line(self, text: str) -> None:
        """A line as it is."""


class Log:
    """Writes lines to standard output as they come. A reader that is gone does not stop the server."""

    def engine(self, message: str) -> None:
        """A line of the engine's, as vLLM's logger writes it."""
        self.line(f"INFO {time.strftime('%m-%d %H:%M:%S')} [reference] {message}")

    def uvicorn(self, message: str) -> None:
        """A line of the HTTP server's, as uvicorn writes it."""
        self.line(f"INFO:     {message}")

    def line(self, text: str) -> None:
        """One line."""
        self.write_bytes((text + "\n").encode(errors="replace"))

    def write_bytes(self, data: bytes) -> None:
        """Bytes as they are, at once."""
        try:
            while data:
                data = data[os.write(_STDOUT, data) :]
        except OSError:
            pass  # nobody reads the log any more


def memory_line(cache_bytes: int) -> str:
    """Given the cache's bytes, return vLLM's line about them (source: vLLM 0.32, `gpu_worker`)."""
    return f"Available KV cache memory: {cache_bytes / _GIB:.2f} GiB"


def kv_cache_line(device: str, tokens: int, max_model_len: int) -> str:
    """Given the cache's size, return vLLM's line about it (source: vLLM 0.32, `kv_cache_utils`)."""
    concurrency = f"Maximum concurrency for {max_model_len:,} tokens per request: {tokens / max_model_len:.2f}x"
    return f"{device} KV cache size: {tokens:,} tokens, {concurrency}"


def loaded_line(weight_bytes: int, seconds: float) -> str:
    """Given what was loaded, return vLLM's line about it."""
    return f"Model loading took {weight_bytes / _GIB:.3f} GiB memory and {seconds:.3f} seconds"
