"""What the documents say exists: commands, options, exit codes, reasons, phases, files, formulas, links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import lanectl
from lanectl.actions import discard
from lanectl.cli.app import HIDDEN, command_line
from lanectl.cli.options import command_of, hoist
from lanectl.core import recovery
from lanectl.core.health import Reason
from lanectl.core.journal import Kind
from lanectl.core.site import Thresholds
from lanectl.core.swap import Outcome, Phase
from lanectl.errors import ExitCode
from lanectl.measure.profiles import PROFILES
from lanectl.measure.rows import MOST_PREFIX_HITS, CellRun, cell_rows
from tests.support.documents import (
    FOR_USERS,
    REPOSITORY,
    anchors,
    code_spans,
    documents,
    fenced_lines,
    lanectl_lines,
    links,
    rows,
    section,
    state_paths,
    text,
)

ONE_SCREEN = 60  # lines
OTHERS_WORDS = ("No such image",)  # the container engine's
RUNBOOK = text("docs/runbook.md")
JOURNAL = text("docs/design/journal.md")
ROOT = command_line(None, outlines=False)


def options_of(command: Any) -> set[str]:
    below = getattr(command, "commands", {}).values()
    return {name for param in command.params for name in param.opts}.union(*map(options_of, below), {"--help"})


def names_of(command: Any, path: str = "") -> set[str]:
    """The full names of all commands that help lists."""
    below = getattr(command, "commands", None)
    if not below:
        return {path}
    inner = ((f"{path} {name}".strip(), one) for name, one in below.items() if name not in HIDDEN)
    return set().union(*(names_of(one, name) for name, one in inner))


def parse(words: list[str], *, named: bool = False) -> str:
    """Read a command line as lanectl does, up to its arguments; return the command's full name. Nothing is run.

    `named`: in running text a command may be named without its arguments. Raise what the command line raises.
    """
    hoisted = hoist(words)
    name = command_of(hoisted)
    if name is None:
        if not set(hoisted) <= options_of(ROOT):
            raise ValueError("no command, and not an option of all of them")
        return ""
    rest = hoisted[hoisted.index(name) + 1 :]
    command = ROOT.commands[name]
    while getattr(command, "commands", None):
        name, command = f"{name} {rest[0]}", command.commands[rest[0]]
        rest = rest[1:]
    try:
        command.make_context(name, rest)
    except Exception as error:  # typer's own kind, which has no public name
        if not named or type(error).__name__ != "MissingParameter":
            raise
    return name


def named_commands(document: str) -> set[str]:
    """Return the full names of all commands in a document, having read each of its command lines."""
    fenced, spans = lanectl_lines(fenced_lines(text(document))), lanectl_lines(code_spans(text(document)))
    return {parse(words) for words in fenced} | {parse(words, named=True) for words in spans}


@pytest.mark.parametrize("document", documents())
def test_every_command_line_in_a_document_is_one(document: str) -> None:
    named_commands(document)


@pytest.mark.parametrize(
    "wrong", ["swap v25 --mesure", "swop v25", "--versoin", "audit verify more", "lanes", "logs -n many"]
)
def test_a_command_line_that_is_none_would_be_found(wrong: str) -> None:
    with pytest.raises(Exception):  # noqa: B017 - which one is typer's affair
        parse(wrong.split(), named=True)


def test_every_command_is_in_a_document_for_users() -> None:
    assert names_of(ROOT) - set().union(*map(named_commands, FOR_USERS)) == set()


@pytest.mark.parametrize("document", FOR_USERS)
def test_every_option_that_stands_alone_exists(document: str) -> None:
    alone = {span.split()[0].partition("=")[0] for span in code_spans(text(document)) if span.startswith("--")}
    assert alone <= options_of(ROOT)


def test_the_exit_codes_are_those_of_the_runbook() -> None:
    table = [int(cells[0]) for cells in rows(section(RUNBOOK, "## Exit codes")) if cells[0].isdigit()]
    assert table == [int(code) for code in ExitCode]
    explained = re.findall(r"^### (\d+): ", RUNBOOK, re.MULTILINE)
    assert [int(code) for code in explained] == [int(code) for code in ExitCode if code]


@pytest.mark.parametrize("heading", ["### 3: refused", "### 5: DARK"])
def test_the_messages_that_the_runbook_quotes_are_in_the_code(heading: str) -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "lanectl").rglob("*.py"))
    quoted = [span for cells in rows(section(RUNBOOK, heading)) for span in code_spans(cells[0])]
    fragments = {part.strip() for span in quoted if span not in OTHERS_WORDS for part in span.split("…")}
    assert len(fragments) > 3
    assert {fragment for fragment in fragments if fragment not in code} == set()


def test_the_reason_codes_are_those_of_the_runbook_and_the_ladder_uses_no_others() -> None:
    table = [cells[0].strip("`") for cells in rows(section(RUNBOOK, "## Reasons"))]
    assert sorted(table) == sorted(Reason)
    ladder = rows(section(text("docs/design/readiness.md"), "## The ladder"))
    used = {word for cells in ladder for word in re.findall(r"[A-Z_]{4,}", cells[2])}
    assert used
    assert used <= set(Reason)


def test_the_phases_outcomes_and_kinds_are_those_of_the_journals_note() -> None:
    phases = rows(section(JOURNAL, "## The phases"))
    assert [cells[0] for cells in phases] == list(Phase)
    outcomes = {span.partition(":")[0] for span in code_spans(phases[-1][1])}
    assert outcomes == set(Outcome)
    kinds = next(cells[1] for cells in rows(section(JOURNAL, "## The records")) if cells[0] == "`kind`")
    assert kinds.split(", ") == list(Kind)


def test_every_part_of_the_state_folder_is_in_the_runbook() -> None:
    said = {f"state/{cells[0].strip('`').rstrip('/')}" for cells in rows(section(RUNBOOK, "## Where things are"))}
    assert state_paths() - said - {"state/swaps"} == set()


def test_the_numbers_in_the_documents_are_those_of_the_code() -> None:
    assert "after 1, 2, 4 … minutes, at most an hour apart, twelve times" in RUNBOOK
    assert (recovery.FIRST_RETRY_AFTER_S, recovery.LONGEST_RETRY_AFTER_S, recovery.MOST_RETRIES) == (60, 3600, 12)
    assert "4 hours unless set" in RUNBOOK
    assert Thresholds().swap_deadline_s == 4 * 3600
    assert f"{discard.KEPT_LOG_LINES:,} lines" in text("docs/operating.md")
    assert f"at most {MOST_PREFIX_HITS:.0%}".replace("%", " %") in text("docs/design/measurement.md")


def test_the_profiles_and_formulas_are_those_of_the_measurements_note() -> None:
    note = text("docs/design/measurement.md")
    cells = {cells[0]: cells[1:] for cells in rows(section(note, "## Profiles"))}
    profiles = [PROFILES["general"], PROFILES["quick"]]
    assert [int(value) for value in cells["new tokens"]] == [profile.max_tokens for profile in profiles]
    for said, profile in zip(cells["one stream"], profiles, strict=True):
        one = {cell.requests for cell in profile.cells if cell.streams == 1}
        assert {int(number) for number in re.findall(r"\d+", said)} == one
    runs = (CellRun(cell, (), stopped="not run") for cell in PROFILES["general"].cells)
    formulas = {row.formula for run in runs for row in cell_rows(run)}
    table = (cells[0] for cells in rows(section(note, "## What a number is")))
    assert {span for cell in table for span in code_spans(cell)} == formulas | {"kv_cache_tokens/SOURCE"}


def test_the_first_swap_is_on_the_first_screen_of_the_readme() -> None:
    readme = text("README.md")
    screen = "\n".join(readme.splitlines()[:ONE_SCREEN])
    station = section(screen, "## On a Station")
    assert any(line.startswith("make demo") for line in fenced_lines(screen))
    steps = [line.split()[1] for line in fenced_lines(f"{station}\n```\n") if line.startswith("lanectl ")]
    assert steps[: steps.index("swap")] == ["lanes", "adopt", "status", "units", "plan"]


@pytest.mark.parametrize("document", documents())
def test_every_link_leads_somewhere(document: str) -> None:
    here = (REPOSITORY / document).parent
    for target in links(text(document)):
        path, _, anchor = target.partition("#")
        there = (here / path).resolve() if path else REPOSITORY / document
        assert there.exists(), f"{document}: {target}"
        if anchor:
            assert anchor in anchors(there.read_text(encoding="utf-8")), f"{document}: {target}"


def test_every_design_note_is_on_the_map() -> None:
    notes = {Path(name).name for name in documents() if name.startswith("docs/design/")} - {"README.md"}
    assert notes <= set(links(text("docs/design/README.md")))


def test_the_changelog_has_this_version() -> None:
    versions = re.findall(r"^## \[(.+)\]", text("CHANGELOG.md"), re.MULTILINE)
    assert versions[:2] == ["Unreleased", lanectl.__version__]
