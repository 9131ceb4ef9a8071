"""Where a test's files may lie when it makes thousands of durable writes: a file system in memory, where there is one."""

from pathlib import Path

_MEMORY = Path("/dev/shm")
QUICK_DISK = _MEMORY if _MEMORY.is_dir() else None  # None: where temporary files lie anyway
