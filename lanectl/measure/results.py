"""What a measurement found: rows, cells and conditions as values, and the table a person reads. Pure.

Every row names its formula (lanectl/core/stats.py), because tools use the same words for different quantities. A void
cell keeps its rows, without values and with the reason: a number that could not be had is shown as missing, never left
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lanectl.measure.profiles import BURST_8, BURST_32, ONE_A, ONE_A_AGAIN, ONE_B

OK, VOID = "ok", "void"
KV_CELL = "lane"  # the cell id of rows that belong to the whole lane


@dataclass(frozen=True, slots=True)
class Row:
    """One number. `n`: the requests behind it. `reason`: why a value is null. `formula`: its id, `values/aggregate`."""

    cell: str
    metric: str
    value: float | None
    unit: str
    n: int
    status: str
    reason: str | None
    formula: str


@dataclass(frozen=True, slots=True)
class Check:
    """A closed-world check of one cell. `verdict`: pass | fail | unknown (the server does not say)."""

    id: str
    verdict: str
    detail: str


@dataclass(frozen=True, slots=True)
class CellResult:
    """What is known about a cell beside its rows. `max_waiting`: most requests seen queued; None when not seen."""

    id: str
    streams: int
    n: int
    status: str
    reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reasons: Mapping[str, int]
    start_spread_ms: float | None
    max_waiting: int | None
    at_rest: bool
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """A whole measurement. `conditions`: what the numbers hold for (token source, cache guard, fingerprints, …)."""

    profile: str
    summary: str
    model: str
    rows: tuple[Row, ...]
    cells: tuple[CellResult, ...]
    conditions: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def value(self, cell: str, metric: str) -> float | None:
        """Return a row's value, None when it is null or there is no such row."""
        return next((row.value for row in self.rows if (row.cell, row.metric) == (cell, metric)), None)

    @property
    def void_cells(self) -> tuple[CellResult, ...]:
        return tuple(cell for cell in self.cells if cell.status == VOID)


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the table: its label, the rows whose values it shows, and how."""

    label: str
    shows: tuple[tuple[str, str], ...]
    form: str
    unit: str


TPS, STEP, TTFT = "single_stream_tps", "step_ms", "ttft_s"
# The three estimates of the engine's step, best first. The server's own is not touched by the way to the client; the
# client's reads near zero when a busy server hands over several steps' chunks at once (seen with vLLM on two cores).
STEP_ESTIMATES = ("step_ms.itl", "step_ms.busy", "step_ms.client")

# In the order of the published comparison.
TABLE = (
    _Line("1 stream, prompt set A / set B", ((ONE_A, TPS), (ONE_B, TPS)), ",.1f", "tok/s"),
    _Line("1 stream, set A again later", ((ONE_A_AGAIN, TPS),), ",.1f", "tok/s"),
    _Line("engine step at 1 stream, set A / set B", ((ONE_A, STEP), (ONE_B, STEP)), ",.2f", "ms"),
    _Line("8 streams, total", ((BURST_8, "burst_total_tps"),), ",.1f", "tok/s"),
    _Line("32 streams, total", ((BURST_32, "burst_total_tps"),), ",.1f", "tok/s"),
    _Line(
        "first token at 32 streams, median / worst",
        ((BURST_32, f"{TTFT}.median"), (BURST_32, f"{TTFT}.worst")),
        ",.2f",
        "s",
    ),
    _Line("conversation memory (KV cache)", ((KV_CELL, "kv_cache_tokens"),), ",.0f", "tokens"),
)


def table(measured: MeasuredProfile) -> list[tuple[str, str, str]]:
    """Return (label, value, unit) in the order of the published comparison.

    A value of a void cell reads `void`, one that the server does not let be known `unknown`; lines of cells that the
    profile does not have are left out.
    """
    rows = {(row.cell, row.metric): row for row in measured.rows}
    for cell in {row.cell for row in measured.rows}:
        estimates = [rows[cell, metric] for metric in STEP_ESTIMATES if (cell, metric) in rows]
        if estimates:
            rows[cell, STEP] = next((row for row in estimates if row.value is not None), estimates[0])
    lines: list[tuple[str, str, str]] = []
    for line in TABLE:
        shown = [rows.get(key) for key in line.shows]
        if any(row is not None for row in shown):
            lines.append((line.label, " / ".join(_shown(row, line.form) for row in shown), line.unit))
    return lines


def notes(measured: MeasuredProfile) -> list[str]:
    """Return what a reader of the table must know beside it: voids, failed checks, queues, weaker sources."""
    found: list[str] = []
    for cell in measured.cells:
        if cell.status == VOID:
            found.append(f"{cell.id} is void: {cell.reason}")
        found += [f"{cell.id}: {check.id} FAILED: {check.detail}" for check in cell.checks if check.verdict == "fail"]
        stopped = sum(count for reason, count in cell.finish_reasons.items() if reason != "length")
        if cell.status == OK and stopped:
            found.append(
                f"{cell.id}: {stopped} of {cell.n} answers ended by themselves, before the last token asked for"
            )
        if cell.max_waiting:
            found.append(f"{cell.id}: up to {cell.max_waiting} requests waited in the server's queue")
    unchecked = sorted({check.id for cell in measured.cells for check in cell.checks if check.verdict == "unknown"})
    if unchecked:
        found.append("could not be checked in every cell: " + ", ".join(unchecked))
    refused = measured.conditions.get("fields_refused")
    if refused:
        found.append(
            "the server refused " + ", ".join(refused) + f" (token counts: {measured.conditions['token_source']})"
        )
    return found


def _shown(row: Row | None, form: str) -> str:
    if row is None or (row.value is None and row.status == OK):
        return "unknown"
    return VOID if row.value is None else format(row.value, form)
