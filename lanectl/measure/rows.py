"""From a finished cell to its rows and checks. Pure.

A void cell has the same rows as a good one: every formula gives None for nothing, so the rows are those of no samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lanectl.core import stats
from lanectl.core.stats import Sample
from lanectl.measure import metrics
from lanectl.measure.metrics import Scrape, increase
from lanectl.measure.profiles import Cell
from lanectl.measure.record import RequestRecord
from lanectl.measure.results import OK, VOID, CellResult, Check, Row

# Above this share of prompt tokens from the prefix cache a cell did not read its prompts (the published harnesses use
# the same 2 %: hits are counted in whole blocks, so a chat template alone can give some).
MOST_PREFIX_HITS = 0.02


@dataclass(frozen=True, slots=True)
class CellRun:
    """A cell as it ran: the records, the counters around it, and what was seen meanwhile. `stopped`: it did not run."""

    cell: Cell
    records: tuple[RequestRecord, ...]
    before: Scrape | None = None
    after: Scrape | None = None
    at_rest: bool = False
    max_waiting: int | None = None
    stopped: str | None = None

    def void_reason(self) -> str | None:
        """Return why the cell is void: any failed request voids it, for its partials would flatter the rate."""
        if self.stopped is not None:
            return self.stopped
        failed = [record for record in self.records if not record.ok]
        if failed:
            first = failed[0]
            return f"{len(failed)} of {self.cell.requests} requests failed; {first.request_id}: {first.error}"
        return None

    def samples(self) -> tuple[Sample, ...]:
        """Return the samples of a cell that is not void. Raise ValueError for one that is."""
        return tuple(record.sample() for record in self.records)


@dataclass(frozen=True, slots=True)
class _Measured:
    """What a formula may use: the samples and the growth of the server's counters over the cell."""

    samples: tuple[Sample, ...]
    before: Scrape | None
    after: Scrape | None

    def grew(self, names: tuple[str, ...]) -> float | None:
        return increase(self.before, self.after, names)

    def steps(self) -> float | None:
        """Return the engine steps taken; None with several engines behind the server, whose steps do not add up."""
        one_engine = self.after is not None and self.after.engines(metrics.STEPS) == 1
        return self.grew(metrics.STEPS) if one_engine else None

    def each(self, formula: Callable[[Sample], float | None]) -> list[float]:
        """Return the formula's value of every request, or nothing unless every request has one."""
        values = [formula(sample) for sample in self.samples]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else []


@dataclass(frozen=True, slots=True)
class _Number:
    """A row's own part. `needs`: what is unknown when the value is None in a cell that is not void."""

    metric: str
    unit: str
    formula: str
    value: float | None
    needs: str = ""


CHUNK_SIZES = "the chunks' tokens are unknown, or an answer came in one chunk"
NO_ANSWER = "not every answer has text beside its reasoning"
NO_WINDOW = "no moment when all streams were decoding, or the chunks' tokens are unknown"
NO_COUNTER = "the server publishes no such counter"


def cell_rows(run: CellRun) -> tuple[Row, ...]:
    """Given a cell as it ran, return its rows: the same ones whether it is void or not."""
    void = run.void_reason()
    measured = _Measured((), None, None) if void else _Measured(run.samples(), run.before, run.after)
    numbers = _one_stream(measured) if run.cell.streams == 1 else _burst(measured)
    return tuple(
        Row(
            cell=run.cell.id,
            metric=number.metric,
            value=number.value,
            unit=number.unit,
            n=len(measured.samples),
            status=VOID if void else OK,
            reason=void or (number.needs if number.value is None else None),
            formula=number.formula,
        )
        for number in numbers
    )


def cell_result(run: CellRun) -> CellResult:
    """Given a cell as it ran, return what is to be known beside its rows."""
    void = run.void_reason()
    prompted = [record.prompt_tokens for record in run.records if record.prompt_tokens is not None]
    return CellResult(
        id=run.cell.id,
        streams=run.cell.streams,
        n=len(run.records),
        status=VOID if void else OK,
        reason=void,
        prompt_tokens=sum(prompted) if not void and len(prompted) == len(run.records) else None,
        completion_tokens=_generated(run),
        finish_reasons=dict(Counter(record.finish_reason or "none" for record in run.records)),
        start_spread_ms=_start_spread_ms(run.records) if run.cell.streams > 1 else None,
        max_waiting=run.max_waiting,
        at_rest=run.at_rest,
        checks=(_foreign_traffic(run), _prefix_cache(run)),
    )


def _one_stream(m: _Measured) -> list[_Number]:
    single = stats.single_stream_tps(m.samples)
    step_itl = stats.step_ms_itl(m.grew(metrics.ITL_SUM), m.grew(metrics.ITL_COUNT))
    step_busy = stats.step_ms_busy(m.samples, m.steps())
    accepted, drafts, drafted = m.grew(metrics.ACCEPTED), m.grew(metrics.DRAFTS), m.grew(metrics.DRAFTED)
    return [
        _Number("single_stream_tps", "tok/s", "single_stream_tps", single),
        _Number("decode_tps.geomean", "tok/s", "decode_tps/geomean", stats.decode_tps_geomean(m.samples), CHUNK_SIZES),
        _Number("e2e_tps.median", "tok/s", "e2e_tps/median", stats.median(m.each(stats.e2e_tps))),
        *_first_token(m),
        *_pace(m),
        _Number("step_ms.client", "ms", "step_ms.client", stats.step_ms_client(m.samples), CHUNK_SIZES),
        _Number("step_ms.itl", "ms", "step_ms.itl", step_itl, NO_COUNTER),
        _Number("step_ms.busy", "ms", "step_ms.busy", step_busy, NO_COUNTER),
        _Number("tokens_per_step", "tokens", "tokens_per_step", stats.tokens_per_step(m.samples), CHUNK_SIZES),
        _Number(
            "acceptance_length", "tokens", "acceptance_length", stats.acceptance_length(accepted, drafts), NO_COUNTER
        ),
        _Number("acceptance_rate", "1", "acceptance_rate", stats.acceptance_rate(accepted, drafted), NO_COUNTER),
    ]


def _burst(m: _Measured) -> list[_Number]:
    spread = stats.start_spread_ms([sample.send_ns for sample in m.samples])
    return [
        _Number("burst_total_tps", "tok/s", "burst_total_tps", stats.burst_total_tps(m.samples)),
        _Number("burst_steady_tps", "tok/s", "burst_steady_tps", stats.burst_steady_tps(m.samples), NO_WINDOW),
        *_first_token(m),
        *_pace(m),
        _Number("start_spread_ms", "ms", "start_spread", spread),
    ]


def _first_token(m: _Measured) -> list[_Number]:
    first, answer = m.each(stats.ttft_s), m.each(stats.ttfa_s)
    return [
        _Number("ttft_s.median", "s", "ttft/median", stats.median(first)),
        _Number("ttft_s.worst", "s", "ttft/max", max(first, default=None)),
        _Number("ttfa_s.median", "s", "ttfa/median", stats.median(answer), NO_ANSWER),
        _Number("ttfa_s.worst", "s", "ttfa/max", max(answer, default=None), NO_ANSWER),
    ]


def _pace(m: _Measured) -> list[_Number]:
    gaps = stats.chunk_gaps_ms(m.samples)
    return [
        _Number("tpot_ms.median", "ms", "tpot/median", stats.median(m.each(stats.tpot_ms)), CHUNK_SIZES),
        _Number("chunk_gap_ms.p50", "ms", "chunk_gap/nearest_rank", stats.nearest_rank(gaps, 50), CHUNK_SIZES),
        _Number("chunk_gap_ms.p99", "ms", "chunk_gap/nearest_rank", stats.nearest_rank(gaps, 99), CHUNK_SIZES),
    ]


def _generated(run: CellRun) -> int | None:
    """Return the tokens of all requests by the server's own per-request counts; None for a void cell."""
    if run.void_reason():
        return None
    return sum(record.completion_tokens or 0 for record in run.records)


def _start_spread_ms(records: Sequence[RequestRecord]) -> float | None:
    return stats.start_spread_ms([record.t_send for record in records if record.t_send is not None])


def _foreign_traffic(run: CellRun) -> Check:
    """Compare the server's token counter with what our requests were given: more means somebody else was served."""
    ours = _generated(run)
    server = increase(run.before, run.after, metrics.GENERATED)
    if ours is None or server is None:
        return Check(
            "foreign_traffic", "unknown", "the cell is void" if ours is None else "no counter, or it was reset"
        )
    detail = f"the server generated {server:.0f} tokens, {ours} of them for this cell"
    return Check("foreign_traffic", "pass" if server == ours else "fail", detail)


def _prefix_cache(run: CellRun) -> Check:
    """Compare prefix cache hits with lookups: cached prompts make first tokens look fast."""
    rate = stats.prefix_hit_rate(
        increase(run.before, run.after, metrics.PREFIX_HITS), increase(run.before, run.after, metrics.PREFIX_QUERIES)
    )
    if rate is None:
        return Check("prefix_cache", "unknown", "no counters, or nothing was looked up")
    verdict = "pass" if rate <= MOST_PREFIX_HITS else "fail"
    return Check("prefix_cache", verdict, f"{rate:.1%} of the prompt tokens came from the cache")
