"""The command line in this process: run it, read what it printed. With a site in memory, or a real one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from lanectl import wiring
from lanectl.actions.station import Station
from lanectl.cli.app import run
from lanectl.settings import Settings
from tests.support.station import SwapSite


@dataclass(frozen=True)
class Printed:
    """How a command line ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        return json.loads(self.out)


class CommandLine:
    """Runs command lines in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Printed:
        self._capsys.readouterr()
        code = run(words)
        said = self._capsys.readouterr()
        return Printed(code, said.out, said.err)


def use_site(site: SwapSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let command lines work on this site's Station, whose engine and prober may be a test's own."""

    def build(settings: Settings) -> Station:
        return site.station(*settings.command[1:])

    monkeypatch.setattr(wiring, "build_station", build)
    monkeypatch.setenv("LANECTL_SITE", str(site.root))
