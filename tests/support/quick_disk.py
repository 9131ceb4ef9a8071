"""Where a test that makes thousands of durable writes keeps its files: in memory, where there is such a file system."""

from pathlib import Path

_MEMORY = Path("/dev/shm")
QUICK_DISK = _MEMORY if _MEMORY.is_dir() else None  # None: where temporary files lie anyway
