"""What a command imports: `--help`, Tab, the cron check and `status` start fast, and stay so. No timing here.

Their time is measured as ratios by benches/startup.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.site_dir import LANE, make_site
from tests.support.station import RealSite, local_site

HEAVY = ("docker", "requests", "rich", "numpy", "psutil", "prometheus_client", "structlog", "tenacity", "pydantic")
REPORT = "import json, sys; code = run(words); sys.stderr.write('\\n' + json.dumps([code, sorted(sys.modules)]))"
WITHIN_S = 60.0


def _imported(*words: str, **environment: str) -> tuple[int, set[str]]:
    """Run a command line in an interpreter of its own; return its exit code and the top-level modules it loaded."""
    program = f"from lanectl.cli.app import run; words = {list(words)!r}; {REPORT}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    code, modules = json.loads(done.stderr.splitlines()[-1])
    return code, set(modules)


def _heavy(modules: set[str]) -> list[str]:
    return sorted({name.partition(".")[0] for name in modules} & set(HEAVY))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RealSite]:
    with local_site(tmp_path / "site") as site:
        yield site


def test_help_loads_nothing_but_the_command_line() -> None:
    code, modules = _imported("--help")
    assert code == 0
    assert not _heavy(modules)
    assert "yaml" not in modules
    ours = {name for name in modules if name.startswith("lanectl")}
    assert {name for name in ours if not name.startswith("lanectl.cli")} == {
        "lanectl",
        "lanectl.errors",
        "lanectl.settings",
    }


def test_the_cron_check_of_a_url_loads_no_spec_reader_and_no_engine() -> None:
    code, modules = _imported("health", "http://127.0.0.1:1")
    assert code == 1
    assert not _heavy(modules)
    assert not [name for name in modules if name.startswith(("lanectl.site.", "lanectl.engine.", "lanectl.store."))]
    assert "yaml" not in modules


def test_status_of_a_serving_site_loads_nothing_heavy(site: RealSite) -> None:
    site.produce()
    code, modules = _imported("status", "--json", LANECTL_SITE=str(site.root))
    assert code == 0
    assert not _heavy(modules)
    assert not [name for name in modules if name.startswith(("lanectl.engine.docker", "lanectl.measure"))]


def test_status_on_docker_does_not_load_the_local_engine(tmp_path: Path) -> None:
    make_site(tmp_path / "site", small=LANE)
    _, modules = _imported("status", LANECTL_SITE=str(tmp_path / "site"))
    assert not [name for name in modules if name.startswith(("lanectl.engine.local", "lanectl.measure"))]
    assert not {"rich", "numpy", "pydantic"} & modules
    # What only a lane's spec or a watchdog needs: each of their frozen values costs half a millisecond.
    assert not {"lanectl.core.lane", "lanectl.core.watch", "lanectl.store.watch", "lanectl.site.lane_values"} & modules


@pytest.mark.parametrize("words", [["lanes", "list"], ["lanes", "validate"], ["audit", "verify"], ["logs", "-n", "1"]])
def test_looking_around_loads_nothing_heavy(site: RealSite, words: list[str]) -> None:
    site.lane("prod")
    _, modules = _imported(*words, LANECTL_SITE=str(site.root))
    assert not _heavy(modules)


def test_the_heavy_modules_are_really_there_to_be_avoided() -> None:
    """A name that is not installed would make the tests above pass for nothing."""
    program = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", program, *HEAVY], check=True, timeout=WITHIN_S)
