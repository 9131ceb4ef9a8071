"""What must hold on a boot before its traffic counts, as pure judgements: pass | fail | inconclusive.

No data is inconclusive, and inconclusive is not passed. Every verdict carries the value, the bar and what was judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

GATES = ("map-handshake", "byte-audit", "map-cosine")

# The published bar for a map: every judged cosine at least this (source: the v25 recipe's bring-up gate).
COSINE_BAR = 0.999
# Below this many tokens a check compares a handful of rows on the decode path, whose noise says nothing about a map
# (the published check's own MIN_T is 65).
COSINE_MIN_TOKENS = 65
# A call whose cold experts contribute nothing to the output has no direction to compare.
COSINE_MIN_SHARE = 0.001
# With fewer judged rows than one for each of a model's 40 layers, whole layers were not looked at.
COSINE_MIN_COUNT = 40

# MEGA_PEER check layer=<l> T=<tokens> rows=<r> cold rel_diff=<f4> cos=<f5> (cold share of output norm <f3>)
CHECK_LINE = re.compile(
    r"MEGA_PEER check layer=(?P<layer>\d+) T=(?P<tokens>\d+) rows=(?P<rows>\d+) cold "
    r"rel_diff=(?P<rel_diff>\S+) cos=(?P<cos>\S+) \(cold share of output norm (?P<share>[^)\s]+)\)"
)


class GateVerdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate's verdict: the value that decided, the bar, and one line on what was judged."""

    gate: str
    verdict: GateVerdict
    value: float | None
    bar: float | None
    detail: str

    @property
    def passed(self) -> bool:
        return self.verdict is GateVerdict.PASS


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One line of check mode. `share`: of the output's norm that the cold experts contribute, 0 to 1."""

    layer: int
    tokens: int
    rows: int
    rel_diff: float
    cos: float
    share: float


@dataclass(frozen=True, slots=True)
class CosineRule:
    """Which rows count, how many must, and the bar for the smallest of them."""

    bar: float = COSINE_BAR
    min_tokens: int = COSINE_MIN_TOKENS
    min_share: float = COSINE_MIN_SHARE
    min_count: int = COSINE_MIN_COUNT

    def counts(self, row: CheckRow) -> bool:
        return row.tokens >= self.min_tokens and row.rows > 0 and row.share >= self.min_share


def check_rows(lines: Iterable[str]) -> list[CheckRow]:
    """Return the check-mode rows in a log, in order; a line whose numbers cannot be read counts as cosine NaN."""
    rows = []
    for line in lines:
        found = CHECK_LINE.search(line)
        if found:
            numbers = {name: _number(found[name]) for name in ("rel_diff", "cos", "share")}
            rows.append(CheckRow(int(found["layer"]), int(found["tokens"]), int(found["rows"]), **numbers))
    return rows


def judge_cosine(rows: Iterable[CheckRow], rule: CosineRule = CosineRule()) -> GateResult:
    """Given check-mode rows, judge the map: the smallest cosine among the rows that count must reach the bar.

    A cosine that is not a number fails: it was compared and came out as nothing. Too few rows are inconclusive, unless
    one of them fails already.
    """
    seen = list(rows)
    judged = [row for row in seen if rule.counts(row)]
    what = (
        f"{len(judged)} of {len(seen)} rows judged (T >= {rule.min_tokens}, rows > 0, cold share >= {rule.min_share:g})"
    )
    if not judged:
        return GateResult("map-cosine", GateVerdict.INCONCLUSIVE, None, rule.bar, f"no row to judge: {what}")
    worst = min(judged, key=lambda row: row.cos if row.cos == row.cos else float("-inf"))
    where = f"smallest at layer {worst.layer}, T={worst.tokens}, rows={worst.rows}; {what}"
    if not worst.cos >= rule.bar:
        return GateResult("map-cosine", GateVerdict.FAIL, worst.cos, rule.bar, where)
    if len(judged) < rule.min_count:
        detail = f"too few rows, {rule.min_count} are asked for; {where}"
        return GateResult("map-cosine", GateVerdict.INCONCLUSIVE, worst.cos, rule.bar, detail)
    return GateResult("map-cosine", GateVerdict.PASS, worst.cos, rule.bar, where)


def judge_audit(checked: int | None, mismatches: int | None) -> GateResult:
    """Given what a byte audit counted (None: the engine gave no answer), judge it: nothing checked is inconclusive."""
    if checked is None or mismatches is None or checked <= 0:
        return GateResult("byte-audit", GateVerdict.INCONCLUSIVE, None, 0, "the engine audited nothing")
    verdict = GateVerdict.PASS if mismatches == 0 else GateVerdict.FAIL
    return GateResult("byte-audit", verdict, float(mismatches), 0, f"{mismatches} mismatches in {checked} experts")


def judge_handshake(manifest: str | None, bound: dict[str, str | None], said: dict[str, str]) -> GateResult:
    """Given the manifest's sha256 of a lane's map, the sha256 of the file each service has bound, and what engines
    said of their own map (a hash by where it was said), judge whether all of them use the one map.

    An engine that says nothing leaves what lanectl bound itself, which is stated.
    """
    if manifest is None or not bound or any(sha is None for sha in bound.values()):
        detail = "the map of a service, or its entry in the manifest, is not known"
        return GateResult("map-handshake", GateVerdict.INCONCLUSIVE, None, None, detail)
    wrong = [f"{where} has {sha}" for where, sha in (bound | said).items() if sha != manifest]
    if wrong:
        detail = f"the manifest says {manifest}; " + "; ".join(wrong)
        return GateResult("map-handshake", GateVerdict.FAIL, None, None, detail)
    heard = f"; {', '.join(said)} said the same" if said else "; no engine says which map it read"
    detail = f"{', '.join(bound)} have the map {manifest[:12]} bound{heard}"
    return GateResult("map-handshake", GateVerdict.PASS, None, None, detail)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
