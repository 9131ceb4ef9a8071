"""Each published formula gives the number that its definition says, and behaves as a rate or a time must."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lanectl.core import stats
from lanectl.core.stats import NS_PER_MS, NS_PER_S, Sample

MS = NS_PER_MS


def request(send: int, chunks: list[tuple[int, int]]) -> Sample:
    """A sample from its send time and (arrival, tokens) pairs."""
    return Sample(
        send_ns=send,
        first_ns=chunks[0][0],
        last_ns=chunks[-1][0],
        tokens=sum(tokens for _, tokens in chunks),
        first_tokens=chunks[0][1],
        chunks=tuple(chunks),
    )


# 10 ms to the first chunk of 2 tokens, then 3 and 1 tokens, 5 ms apart.
THREE_CHUNKS = request(0, [(10 * MS, 2), (15 * MS, 3), (20 * MS, 1)])


def test_one_request_by_hand() -> None:
    assert stats.decode_tps(THREE_CHUNKS) == pytest.approx(4 / 0.010)
    assert stats.e2e_tps(THREE_CHUNKS) == pytest.approx(6 / 0.020)
    assert stats.tpot_ms(THREE_CHUNKS) == pytest.approx(10 / 4)
    assert stats.ttft_s(THREE_CHUNKS) == pytest.approx(0.010)
    assert stats.tokens_per_step([THREE_CHUNKS]) == pytest.approx(2.0)
    assert stats.step_ms_client([THREE_CHUNKS]) == pytest.approx(5.0)
    assert stats.chunk_gaps_ms([THREE_CHUNKS]) == [5.0, 5.0]


def test_single_stream_weighs_requests_by_time_and_the_geomean_does_not() -> None:
    fast = request(0, [(0, 1), (NS_PER_S, 100)])
    slow = request(0, [(0, 1), (NS_PER_S, 25)])
    assert stats.single_stream_tps([fast, slow]) == pytest.approx(127 / 2)
    assert stats.decode_tps_geomean([fast, slow]) == pytest.approx(50.0)


def test_a_burst_by_hand() -> None:
    early = request(0, [(10 * MS, 1), (20 * MS, 1), (30 * MS, 1)])
    late = request(2 * MS, [(15 * MS, 1), (25 * MS, 1), (45 * MS, 2)])
    assert stats.burst_total_tps([early, late]) == pytest.approx(7 / 0.045)
    # The window is 15 ms to 30 ms. early: 1.5 -> 3 tokens. late: 1 -> 2 + 2 * 5/20 tokens.
    assert stats.burst_steady_tps([early, late]) == pytest.approx((1.5 + 1.5) / 0.015)


def test_steady_is_unknown_when_one_stream_ended_before_another_began() -> None:
    one, two = request(0, [(1 * MS, 1), (2 * MS, 1)]), request(0, [(3 * MS, 1), (4 * MS, 1)])
    assert stats.burst_steady_tps([one, two]) is None
    assert stats.burst_total_tps([one, two]) == pytest.approx(4 / 0.004)


def test_unknown_chunk_sizes_leave_only_what_needs_none() -> None:
    sample = Sample(send_ns=0, first_ns=10 * MS, last_ns=20 * MS, tokens=6)
    assert stats.e2e_tps(sample) == pytest.approx(300.0)
    assert stats.burst_total_tps([sample]) == pytest.approx(300.0)
    assert stats.decode_tps(sample) is None
    assert stats.tpot_ms(sample) is None
    assert stats.decode_tps_geomean([THREE_CHUNKS, sample]) is None
    assert stats.burst_steady_tps([sample]) is None
    assert stats.step_ms_client([sample]) is None
    assert stats.tokens_per_step([sample]) is None


def test_everything_in_one_chunk_has_no_decode_rate() -> None:
    sample = request(0, [(10 * MS, 6)])
    assert stats.decode_tps(sample) is None
    assert stats.tpot_ms(sample) is None
    assert stats.tokens_per_step([sample]) is None
    assert stats.e2e_tps(sample) == pytest.approx(600.0)


def test_nothing_measured_is_none_and_never_zero() -> None:
    for of_samples in (
        stats.single_stream_tps,
        stats.decode_tps_geomean,
        stats.burst_total_tps,
        stats.burst_steady_tps,
        stats.step_ms_client,
        stats.tokens_per_step,
    ):
        assert of_samples([]) is None, of_samples.__name__
    assert stats.median([]) is None
    assert stats.nearest_rank([], 50) is None
    assert stats.geomean([]) is None
    assert stats.start_spread_ms([]) is None
    assert stats.step_ms_itl(None, 3) is None
    assert stats.step_ms_itl(0.0, 0) is None
    assert stats.step_ms_busy([THREE_CHUNKS], None) is None
    assert stats.acceptance_length(None, None) is None
    assert stats.acceptance_length(0, 0) is None
    assert stats.acceptance_rate(0, 0) is None
    assert stats.prefix_hit_rate(0, 0) is None


def test_server_side_estimators_by_hand() -> None:
    assert stats.step_ms_itl(1.18, 100) == pytest.approx(11.8)
    assert stats.step_ms_busy([THREE_CHUNKS, THREE_CHUNKS], 8) == pytest.approx(5.0)
    assert stats.acceptance_length(209, 100) == pytest.approx(3.09)
    assert stats.acceptance_rate(209, 500) == pytest.approx(0.418)
    assert stats.prefix_hit_rate(21, 1000) == pytest.approx(0.021)


def test_the_published_rates_are_tokens_per_step_over_the_step() -> None:
    """Published: 261.5 tok/s at 11.80 ms a step and 414.2 at 7.65 ms are 3.09 and 3.17 tokens a step."""
    for rate, step_ms, per_step in ((261.5, 11.80, 3.09), (414.2, 7.65, 3.17)):
        steps = [(i * round(step_ms * MS), 3 if i % 100 else 12) for i in range(1000)]
        sample = request(0, steps)
        mean = stats.tokens_per_step([sample])
        assert mean == pytest.approx(per_step, rel=0.03)
        assert stats.step_ms_client([sample]) == pytest.approx(step_ms)
        assert stats.decode_tps(sample) == pytest.approx(rate, rel=0.03)


def test_a_sample_that_no_measurement_can_give_is_refused() -> None:
    with pytest.raises(ValueError, match="out of order"):
        Sample(send_ns=2, first_ns=1, last_ns=3, tokens=1)
    with pytest.raises(ValueError, match="at least one token"):
        Sample(send_ns=0, first_ns=1, last_ns=3, tokens=0)
    with pytest.raises(ValueError, match="percent"):
        stats.nearest_rank([1.0], 0)


@pytest.mark.parametrize(("percent", "value"), [(1, 1), (50, 5), (50.1, 6), (90, 9), (99, 10), (100, 10)])
def test_nearest_rank_by_hand(percent: float, value: float) -> None:
    assert stats.nearest_rank([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], percent) == value


# --- properties -------------------------------------------------------------------------------------------------

NUMBERS = st.floats(1e-3, 1e6)


@st.composite
def samples(draw: st.DrawFn, min_chunks: int = 1, last_send: int = 10**9, gap: tuple[int, int] = (0, 10**8)) -> Sample:
    send = draw(st.integers(0, last_send))
    gaps = draw(st.lists(st.integers(*gap), min_size=min_chunks, max_size=30))
    at, chunks = send, []
    for pause in gaps:  # 0: two chunks that one read brought
        at += pause
        chunks.append((at, draw(st.integers(1, 6))))
    return request(send, chunks)


MANY = st.lists(samples(), min_size=1, max_size=8)


@given(st.lists(NUMBERS, min_size=1), st.floats(0.001, 100))
def test_nearest_rank_is_one_of_the_values_and_covers_its_share(values: list[float], percent: float) -> None:
    found = stats.nearest_rank(values, percent)
    assert found in values
    not_above = sum(value <= found for value in values)
    below = sum(value < found for value in values)
    assert not_above >= percent / 100 * len(values) > below or math.isclose(percent / 100 * len(values), below)


@given(st.lists(NUMBERS, min_size=1), st.floats(0.01, 100))
def test_geomean_lies_between_the_extremes_and_scales(values: list[float], factor: float) -> None:
    found = stats.geomean(values)
    assert found is not None
    assert min(values) * (1 - 1e-9) <= found <= max(values) * (1 + 1e-9)
    assert stats.geomean([value * factor for value in values]) == pytest.approx(found * factor)


@given(samples(min_chunks=2, gap=(1, 10**8)))
def test_tpot_is_the_inverse_of_the_decode_rate(sample: Sample) -> None:
    rate, per_token = stats.decode_tps(sample), stats.tpot_ms(sample)
    assert rate is not None
    assert per_token is not None
    assert rate * per_token == pytest.approx(1000.0)


@given(MANY)
def test_single_stream_lies_between_the_slowest_and_the_fastest_request(cell: list[Sample]) -> None:
    rates = [stats.e2e_tps(sample) for sample in cell]
    assume(None not in rates)
    found = stats.single_stream_tps(cell)
    assert found is not None
    assert min(rates) * (1 - 1e-9) <= found <= max(rates) * (1 + 1e-9)


@given(MANY, st.integers(0, 10**12))
def test_no_formula_depends_on_when_the_clock_began(cell: list[Sample], shift: int) -> None:
    moved = [request(s.send_ns + shift, [(at + shift, n) for at, n in s.chunks]) for s in cell]
    for formula in (stats.single_stream_tps, stats.burst_total_tps, stats.burst_steady_tps, stats.step_ms_client):
        assert formula(moved) == pytest.approx(formula(cell)), formula.__name__


@given(MANY)
def test_the_order_of_requests_does_not_matter(cell: list[Sample]) -> None:
    for formula in (stats.single_stream_tps, stats.burst_total_tps, stats.burst_steady_tps, stats.tokens_per_step):
        assert formula(cell[::-1]) == pytest.approx(formula(cell)), formula.__name__


@given(samples(), st.lists(st.integers(0, 2 * 10**9), min_size=2, max_size=5))
def test_tokens_at_grows_from_none_to_all(sample: Sample, moments: list[int]) -> None:
    counts = [stats.tokens_at(sample.chunks, at) for at in sorted(moments)]
    assert counts == sorted(counts)
    assert stats.tokens_at(sample.chunks, sample.first_ns - 1) == 0
    assert stats.tokens_at(sample.chunks, sample.first_ns) >= sample.chunks[0][1]
    assert stats.tokens_at(sample.chunks, sample.last_ns) == sample.tokens


@given(st.integers(1, 32), st.integers(1, 6), st.integers(2, 100), st.integers(1, 10**8))
def test_a_perfectly_even_burst_has_a_steady_rate_of_streams_times_tokens_over_the_step(
    streams: int, per_chunk: int, chunks: int, gap_ns: int
) -> None:
    stream = request(0, [(i * gap_ns, per_chunk) for i in range(1, chunks + 1)])
    steady = stats.burst_steady_tps([stream] * streams)
    assert steady == pytest.approx(streams * per_chunk * NS_PER_S / gap_ns)
    total = stats.burst_total_tps([stream] * streams)
    assert total == pytest.approx(steady)  # the first chunk took one gap too, so there is no ramp


@given(st.lists(samples(min_chunks=5, last_send=10**6, gap=(10**6, 10**8)), min_size=2, max_size=8))
def test_a_steady_window_never_holds_more_tokens_than_there_are(cell: list[Sample]) -> None:
    steady = stats.burst_steady_tps(cell)
    assume(steady is not None)
    assert steady is not None
    window = min(s.last_ns for s in cell) - max(s.first_ns for s in cell)
    assert 0 <= steady * window / NS_PER_S <= sum(s.tokens for s in cell) + 1e-6
