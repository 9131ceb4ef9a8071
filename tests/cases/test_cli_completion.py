"""Tab completes commands and the site's lane names, and never prints an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.site_dir import LANE, make_site

WITHIN_S = 30.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lanes = {name: LANE.replace("small", name) for name in ("gracetier", "october", "pg61")}
    return make_site(tmp_path / "site", **lanes)


def _tab(line: str, where: Path, **environment: str) -> list[str]:
    """Return what bash would be offered after this line."""
    words = line.split(" ")
    asked = {"_LANECTL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    plain = {name: value for name, value in os.environ.items() if name != "LANECTL_SITE"}
    done = subprocess.run(
        [sys.executable, "-m", "lanectl"],
        env={**plain, **asked, **environment},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        cwd=where,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("verb", ["swap", "plan", "health", "logs", "render", "lanes show", "lanes validate pg61"])
def test_lane_names_of_the_site_here(root: Path, verb: str) -> None:
    assert _tab(f"lanectl {verb} ", root) == ["gracetier", "october", "pg61"]
    assert _tab(f"lanectl {verb} g", root) == ["gracetier"]


def test_lane_names_of_a_site_that_is_named(root: Path, tmp_path: Path) -> None:
    assert _tab(f"lanectl --site {root} swap o", tmp_path) == ["october"]
    assert _tab(f"lanectl swap --site {root} o", tmp_path) == ["october"]
    assert _tab("lanectl swap o", tmp_path, LANECTL_SITE=str(root)) == ["october"]


def test_commands_and_no_hidden_one(tmp_path: Path) -> None:
    assert _tab("lanectl st", tmp_path) == ["status", "stop", "start"]
    assert _tab("lanectl gu", tmp_path) == []


def test_no_site_no_names_no_error(tmp_path: Path) -> None:
    assert _tab("lanectl swap ", tmp_path) == []


def test_broken_specs_complete_all_the_same(root: Path) -> None:
    (root / "station.yaml").write_text("{{{ not yaml")
    assert _tab("lanectl swap p", root) == ["pg61"]
