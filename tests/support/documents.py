"""The documents for users and maintainers: where they are, and what is said in them, as data."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from lanectl.store.layout import StateDir

REPOSITORY = Path(__file__).resolve().parents[2]
FOR_USERS = ("README.md", "CHANGELOG.md", "docs/runbook.md", "docs/operating.md")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def repository_files() -> list[Path]:
    """Return the files of the repository: those in git, and those that would be added."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, check=True).stdout.decode()
    return [path for name in found.split("\0") if name and (path := REPOSITORY / name).is_file()]


def documents() -> list[str]:
    """Return the names of all Markdown files of the repository."""
    return sorted(str(path.relative_to(REPOSITORY)) for path in repository_files() if path.suffix == ".md")


def state_paths() -> set[str]:
    """Return the paths, from the site on, of all that lanectl keeps in a site."""
    state = StateDir(Path("state"))
    parts = [part.fget for part in vars(StateDir).values() if isinstance(part, property) and part.fget]
    return {str(part(state)) for part in parts} | {str(state.journal("SWAP")), str(state.logs("SWAP") / "SERVICE.log")}


def text(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def fenced_lines(markdown: str, language: str = "sh") -> list[str]:
    """Return the lines of all fenced blocks of a language."""
    blocks = (match.group(2) for match in _FENCE.finditer(markdown) if match.group(1) == language)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def code_spans(markdown: str) -> list[str]:
    """Return what stands in single backticks outside of fenced blocks."""
    return _CODE.findall(_FENCE.sub("", markdown))


def lanectl_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """Given lines of a shell, yield the words of every lanectl command, program name left out."""
    for line in lines:
        for part in line.split("&&"):
            if part.strip().startswith("lanectl "):
                yield shlex.split(part, comments=True)[1:]


def links(markdown: str) -> list[str]:
    """Return the targets of all links that stay in the repository."""
    return [target for target in _LINK.findall(_FENCE.sub("", markdown)) if "://" not in target]


def anchors(markdown: str) -> set[str]:
    """Return the anchors that the headings of a document have where it is read (as GitHub makes them)."""
    headings = (heading.strip().lower() for heading in _HEADING.findall(_FENCE.sub("", markdown)))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def section(markdown: str, heading: str) -> str:
    """Return what stands under a heading, up to the next one of its level or above. Raise ValueError without it."""
    level = heading.partition(" ")[0]
    begin = markdown.index(f"\n{heading}\n") + len(heading) + 2
    end = re.search(rf"^#{{1,{len(level)}}} ", markdown[begin:], re.MULTILINE)
    return markdown[begin : begin + end.start()] if end else markdown[begin:]


def rows(markdown: str) -> list[list[str]]:
    """Return the cells of every table row, headers and rules left out."""
    found, lines = [], markdown.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line.lstrip().startswith("|") and before.lstrip().startswith("|") and not _is_rule(line):
            found.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return found


def _is_rule(line: str) -> bool:
    return set(line.strip()) <= set("|-: ")
