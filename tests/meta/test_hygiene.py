"""What no file of the repository may hold, and what every checkout must be."""

from __future__ import annotations

import hashlib
import re
import subprocess

import pytest

from tests.support.documents import REPOSITORY, repository_files, state_paths

# The full text as its authors publish it, at apache.org/licenses/LICENSE-2.0.txt.
APACHE_2_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"

# Put together here, so that this file does not hold what it looks for. Where packages come from is the affair of the
# machine's own configuration; a path of one machine means nothing on another.
DOT, SLASH = ".", "/"
PACKAGE_HOSTS = (
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("deb", "debian", "org"),
    ("security", "debian", "org"),
    ("archive", "ubuntu", "com"),
    ("registry", "npmjs", "org"),
    ("proxy", "golang", "org"),
    ("download", "pytorch", "org"),
)
PATTERNS = (
    *(re.escape(DOT.join(host)) for host in PACKAGE_HOSTS),
    rf"(?<![\w.-]){SLASH}work{SLASH}",
    rf"\bshared{SLASH}(?:design|cases|seeds|hooks)",
    r"\b(?:" + "|".join(["Chat" + "GPT", "Co" + "pilot", "Clau" + "de", "Anthro" + "pic"]) + r")\b",
    rf"\bA{''}I\b",
)
FORBIDDEN = re.compile("|".join(PATTERNS))
BINARY = b"\0"


def texts() -> list[tuple[str, str]]:
    """Return every text file of the repository by its name."""
    found = ((str(path.relative_to(REPOSITORY)), path.read_bytes()) for path in repository_files())
    return [(name, content.decode("utf-8", "replace")) for name, content in found if BINARY not in content]


def ignored(*paths: str) -> set[str]:
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", *paths], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return set(done.stdout.splitlines())


def test_no_file_names_a_package_host_a_machines_path_or_a_tool() -> None:
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, content in texts()
        for number, line in enumerate(content.splitlines(), start=1)
        if FORBIDDEN.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        f"index-url = https://{DOT.join(PACKAGE_HOSTS[0])}/simple",
        f"see {SLASH}work{SLASH}main/docs",
        f"../shared{SLASH}design/architecture.md",
    ],
)
def test_what_is_forbidden_would_be_found(line: str) -> None:
    assert FORBIDDEN.search(line)


@pytest.mark.parametrize(
    "line", ["state/swaps/SWAP/", f"network{SLASH}work{SLASH}", "a shared lock", "https://docs.docker.com"]
)
def test_what_is_harmless_is_not(line: str) -> None:
    assert not FORBIDDEN.search(line)


def test_nothing_that_lanectl_writes_into_a_site_is_kept_in_git() -> None:
    written = state_paths() | {"station.yaml"}
    assert ignored(*written) == written
    assert [name for name, _ in texts() if name.startswith("state/")] == ["state/README.md"]


def test_the_licence_is_the_whole_text() -> None:
    content = (REPOSITORY / "LICENSE").read_bytes()
    assert hashlib.sha256(content).hexdigest() == APACHE_2_SHA256
