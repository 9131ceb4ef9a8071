"""What the command line and the environment say, as one frozen value; and which site is meant."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lanectl.errors import ExitCode, LaneError

SITE_VARIABLE = "LANECTL_SITE"
STATION_FILE = "station.yaml"


@dataclass(frozen=True, slots=True)
class Settings:
    """`site`: what --site said. `json`: results as JSON on stdout. `command`: the command line, for lock and audit."""

    site: str | None = None
    json: bool = False
    verbose: bool = False
    command: tuple[str, ...] = ("lanectl",)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def site_root(site: str | None, environ: Mapping[str, str]) -> Path:
    """Given what --site said, return the site's directory: --site, else LANECTL_SITE, else the current directory.

    A directory above the current one is never taken: a command that stops production must not depend on how deep in
    a tree it was typed. Raise `LaneError` (exit 2) when nothing names a site and the current directory is none.
    """
    named = site or environ.get(SITE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    try:
        here = Path.cwd()
        if (here / STATION_FILE).exists():
            return here
    except OSError as error:  # it was removed, or another user may not look into it
        raise LaneError(
            f"no site: this directory cannot be read: {error.strerror}", "name one with --site DIR"
        ) from None
    raise LaneError(
        f"no site: neither --site nor {SITE_VARIABLE} is given, and {here} has no {STATION_FILE}",
        "name one with --site DIR, or copy station.example.yaml to station.yaml here; `lanectl demo` makes one to try",
        ExitCode.USAGE,
    )
