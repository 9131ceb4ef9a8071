"""What the crash tests share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.quick_disk import QUICK_DISK


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder per case, on a file system in memory where there is one."""
    root = Path(tempfile.mkdtemp(dir=QUICK_DISK))
    yield root
    shutil.rmtree(root, ignore_errors=True)
