"""Run the gates of a boot: collect what each needs from the serving candidate and let core/gates.py judge it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lanectl.actions.progress import Progress
from lanectl.actions.station import Station
from lanectl.core.gates import (
    GateResult,
    GateVerdict,
    check_rows,
    judge_audit,
    judge_cosine,
    judge_handshake,
)
from lanectl.core.lane import Lane
from lanectl.core.site import reachable
from lanectl.errors import GateFailed, LaneError
from lanectl.site.manifest import file_sha256

# What an engine may print of the map it read: a sha256 after the words "map" or "rowmap".
SAID_MAP = re.compile(r"\b(?:row)?map\b[^\n]*?\bsha256[ =:]+([0-9a-f]{64})\b", re.IGNORECASE)
# Prompts of the gate's own boot: real text from the measuring prompts, long enough that a step carries many rows.
GATE_TOKENS = 32
AUDIT_PATH = "/audit"


@dataclass(frozen=True, slots=True)
class Boot:
    """A serving candidate: its lane and the container of each service."""

    station: Station
    lane: Lane
    containers: Mapping[str, str]
    check: Callable[[], None]
    progress: Progress

    @property
    def base_url(self) -> str:
        return f"http://{reachable(self.lane.host)}:{self.lane.port}"

    @property
    def api_key(self) -> str | None:
        ready = self.lane.server.ready
        return self.station.api_key(ready.api_key if ready else None)

    def log(self, service: str) -> list[str]:
        return list(self.station.engine.logs(self.containers[service], follow=False))


def run_gate(boot: Boot, gate: str) -> GateResult:
    """Run one gate on a serving boot; return its verdict. Raise `LaneError` when the candidate cannot be asked."""
    boot.check()
    boot.progress.ticker(f"gate {gate}")
    return _GATES[gate](boot)


def require_pass(step: str, result: GateResult) -> dict[str, Any]:
    """Given a verdict, return what the journal keeps of it. Raise `GateFailed` unless it passed."""
    kept: dict[str, object] = {
        "verdict": str(result.verdict),
        "value": result.value,
        "bar": result.bar,
        "detail": result.detail,
    }
    value = "no value" if result.value is None else f"{result.value:g}"
    bar = "" if result.bar is None else f", bar {result.bar:g}"
    if not result.passed:
        message = f"gate {result.gate}: {result.verdict}: {value}{bar}; {result.detail}"
        raise GateFailed(step, message, kept)
    return kept


def _map_cosine(boot: Boot) -> GateResult:
    """Send real prompts to a boot in check mode and read the rows that its server logs about them."""
    answered = boot.station.converse(boot.base_url, boot.lane.served_model, GATE_TOKENS, boot.check, boot.api_key)
    if answered == 0:
        return GateResult("map-cosine", GateVerdict.INCONCLUSIVE, None, None, "no prompt was answered")
    return judge_cosine(check_rows(boot.log(boot.lane.server.name)))


def _byte_audit(boot: Boot) -> GateResult:
    said = boot.station.post_json(boot.base_url + AUDIT_PATH, boot.api_key)
    if said is None:
        return judge_audit(None, None)
    checked, mismatches = said.get("checked"), said.get("mismatches")
    known = isinstance(checked, int) and isinstance(mismatches, int)
    return judge_audit(checked, mismatches) if known else judge_audit(None, None)


def _map_handshake(boot: Boot) -> GateResult:
    ref = boot.lane.map
    if ref is None:
        return judge_handshake(None, {}, {})
    try:
        found: str | None = file_sha256(Path(ref.file))
    except (OSError, LaneError):
        found = None
    said = {}
    for service in ref.services:
        for line in boot.log(service):
            heard = SAID_MAP.search(line)
            if heard:
                said[f"{service}'s log"] = heard[1]
    return judge_handshake(ref.sha256, dict.fromkeys(ref.services, found), said)


_GATES: dict[str, Callable[[Boot], GateResult]] = {
    "map-cosine": _map_cosine,
    "byte-audit": _byte_audit,
    "map-handshake": _map_handshake,
}
