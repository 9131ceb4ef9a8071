"""The engines under the contract suite: every module `harness_<engine>.py` beside this file brings one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.contract.harness import Harness

ENGINES = sorted(path.stem.removeprefix("harness_") for path in Path(__file__).parent.glob("harness_*.py"))


def _module(engine: str) -> Any:
    return importlib.import_module(f"tests.contract.harness_{engine}")


@pytest.fixture(params=[pytest.param(name, marks=getattr(_module(name), "MARKS", ())) for name in ENGINES])
def harness(request: pytest.FixtureRequest) -> Harness:
    """One engine under test; the test runs once for each."""
    made: Harness = _module(request.param).make(request)
    return made
