"""Who may import whom (docs/design): the contracts in pyproject.toml hold, and each of them can be broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
WITHIN_S = 120.0

# One import that each contract forbids: (contract's id, module, line).
OFFENCES = {
    "an action imports the command line": ("layers", "actions/drain.py", "import lanectl.cli.render"),
    "a probe imports the spec reader": ("layers", "probes/ports.py", "import lanectl.site.tree"),
    "core imports a store": ("layers", "core/lane.py", "import lanectl.store.files"),
    "a module without a place": ("layers", "utils.py", ""),
    "the command line builds an engine": ("adapters", "cli/plan.py", "from lanectl.engine.docker import DockerEngine"),
    "an action builds a prober": ("adapters", "actions/drain.py", "from lanectl.probes.http import HttpProber"),
    "the spec reader locks": ("site", "site/tree.py", "import lanectl.store.lock"),
    "an action imports docker": ("decisions", "actions/drain.py", "import docker"),
    "core imports docker by a detour": ("decisions", "core/lane.py", "import lanectl.engine.docker_api"),
    "core looks at the clock": ("pure", "core/plan.py", "import time"),
    "core logs": ("pure", "core/plan.py", "def f():\n    import logging"),
    "core opens files": ("pure", "core/plan.py", "from pathlib import Path"),
    "the reference engine borrows": ("reference", "reference/kv.py", "import lanectl.core.stats"),
    "something uses the reference engine": (
        "nobody-imports-reference",
        "measure/client.py",
        "import lanectl.reference.kv",
    ),
}


def _lint(where: Path, contract: str | None = None) -> subprocess.CompletedProcess[str]:
    only = ["--contract", contract] if contract else []
    program = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", program, "--no-cache", *only],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(where)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


def test_the_contracts_hold() -> None:
    done = _lint(REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("offence", OFFENCES)
def test_each_contract_can_be_broken(tmp_path: Path, offence: str) -> None:
    contract, module, line = OFFENCES[offence]
    shutil.copytree(REPOSITORY / "lanectl", tmp_path / "lanectl", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    with (tmp_path / "lanectl" / module).open("a") as file:
        file.write(f"\n{line}\n")
    done = _lint(tmp_path, contract)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout
