"""Options that every command takes, wherever they stand, and arguments that several commands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import typer

from lanectl.settings import Settings, site_root

FLAGS = ("--json", "--verbose", "-v")
SITE = "--site"
EPILOG = "Everywhere: --site DIR, --json (results as JSON on stdout), -v."


def hoist(words: Sequence[str]) -> list[str]:
    """Given a command line, return it with the global options in front, where the command line's root takes them.

    So `lanectl status --json` and `lanectl --json status` are the same. What follows a `--` stays where it is.
    """
    front: list[str] = []
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return [*front, *rest, word, *left]
        if word in FLAGS or word.startswith(f"{SITE}="):
            front.append(word)
        elif word == SITE and left:
            front += [word, left.pop(0)]
        else:
            rest.append(word)
    return [*front, *rest]


def command_of(words: Sequence[str]) -> str | None:
    """Given a hoisted command line, return its command's name; None where options come first that are not global."""
    left = [word for word in words if word != "--"]
    while left and (left[0] in FLAGS or left[0] == SITE or left[0].startswith(f"{SITE}=")):
        left = left[2:] if left[0] == SITE else left[1:]
    return left[0] if left and not left[0].startswith("-") else None


def json_wanted(words: Sequence[str]) -> bool:
    """True when the command line asks for JSON, be it right otherwise or not."""
    return "--json" in words[: words.index("--") if "--" in words else len(words)]


def settings(context: typer.Context) -> Settings:
    """Return the settings that the root of the command line made."""
    found = context.find_root().obj
    if not isinstance(found, Settings):
        raise AssertionError("the root callback sets the settings")
    return found


def complete_lane(incomplete: str) -> list[str]:
    """Return the site's lane names that begin so. A shell's Tab never prints an error: no site, no names."""
    from lanectl.errors import LaneError
    from lanectl.site.load import lane_names

    words = os.environ.get("COMP_WORDS", "").split() or os.environ.get("_TYPER_COMPLETE_ARGS", "").split()
    site = next((after for word, after in pairwise(words) if word == SITE), None)
    try:
        names = lane_names(site_root(site, os.environ))
    except (LaneError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]


Lane = Annotated[str, typer.Argument(metavar="LANE[@VARIANT]", help="The lane.", autocompletion=complete_lane)]
