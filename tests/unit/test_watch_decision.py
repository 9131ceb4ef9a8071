"""When the watchdog kills a lane, judged from counters alone: recorded traces, single rules, and any trace at all."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.core.watch import (
    BOOT_STALL_S,
    WORDS,
    Counters,
    FileId,
    Hold,
    Known,
    Mode,
    NewEpoch,
    Rule,
    Sample,
    Sidecar,
    Trip,
    Verdict,
    decode,
    judge,
)

TRACES = json.loads((Path(__file__).parents[1] / "golden" / "watch_traces.json").read_text())
STALL_S = 2.0
FILE = FileId(7, 11)
WELL = Sample(0.0, Counters(5, 5, 0), FILE)


def verdicts(
    samples: Iterable[Sample], mode: Mode = Mode.SERVING, stall_s: float = STALL_S, known: Known | None = None
) -> list[tuple[float, Verdict]]:
    """Judge the samples in their order up to the first trip."""
    known, found = known or Known(), []
    for sample in samples:
        verdict, known = judge(known, sample, mode, stall_s)
        found.append((sample.at, verdict))
        if isinstance(verdict, Trip):
            break
    return found


def trip(samples: Iterable[Sample], mode: Mode = Mode.SERVING, stall_s: float = STALL_S) -> tuple[float, Trip] | None:
    at, last = verdicts(samples, mode, stall_s)[-1]
    return (at, last) if isinstance(last, Trip) else None


def rule(*samples: Sample, mode: Mode = Mode.SERVING) -> Rule | None:
    found = trip(samples, mode)
    return found[1].rule if found else None


def trace(name: str) -> list[Sample]:
    return [Sample(at, Counters(*words), FILE) for at, words in TRACES[name]]


def waiting(at: float, published: int = 6, completed: int = 5, **more: int) -> Sample:
    return Sample(at, Counters(published, completed, 0, **more), FILE)


@pytest.mark.parametrize("name", ["idle", "load", "long prefill", "epoch change"])
def test_a_recorded_lane_that_works_is_never_killed(name: str) -> None:
    assert trip(trace(name)) is None


def test_T50_a_long_prefill_is_work_though_no_token_and_no_row_is_counted() -> None:
    """In the recording a call takes 1.2 s, and the words of rows and tokens stand still for all of its 9 s."""
    samples = trace("long prefill")
    assert {sample.counters.tokens for sample in samples if sample.counters} == {0}
    assert {sample.counters.rows for sample in samples if sample.counters} == {0}
    assert trip(samples) is None
    assert trip(samples, stall_s=1.0) is not None  # the same calls are a stall where the spec allows 1 s


def test_a_recorded_epoch_change_is_said_once_and_watched_on() -> None:
    epochs = [verdict for _, verdict in verdicts(trace("epoch change")) if isinstance(verdict, NewEpoch)]
    assert [one.epoch for one in epochs] == [2]
    assert epochs[0].after.published < epochs[0].before.published


def test_a_recorded_stall_trips_at_the_first_look_after_its_deadline() -> None:
    samples = trace("stall")
    frozen = max(sample.counters.completed for sample in samples if sample.counters)
    first = next(s.at for s in samples if s.counters and s.counters.completed == frozen and s.counters.pending)
    found = trip(samples)
    assert found is not None
    assert found[1].rule is Rule.STALL
    assert found[0] == next(sample.at for sample in samples if sample.at >= first + STALL_S)


def test_a_recorded_timeout_trips_at_the_first_look_that_shows_it() -> None:
    samples = trace("timeout")
    found = trip(samples)
    assert found is not None
    assert found[1].rule is Rule.TIMEOUT
    assert found[0] == next(sample.at for sample in samples if sample.counters and sample.counters.timeouts)


def test_a_timeout_from_before_the_arming_trips_too() -> None:
    assert rule(Sample(0.0, Counters(9, 9, 1), FILE)) is Rule.TIMEOUT


def test_a_timeout_in_a_new_epoch_trips_though_it_is_no_more_than_before() -> None:
    """In mode `observe` the watch goes on after a timeout; the server that zeroed the counters has its own."""
    known = Known(Counters(900, 900, 3), FILE)
    found = verdicts([Sample(1.0, Counters(4, 4, 3), FILE)], known=known)
    assert isinstance(found[0][1], Trip)
    assert found[0][1].rule is Rule.TIMEOUT


def test_a_lane_that_waits_for_nothing_may_do_so_for_ever() -> None:
    assert trip(replace(WELL, at=float(at)) for at in range(0, 100_000, 1000)) is None


def test_the_clock_of_a_stall_starts_when_the_call_is_first_seen_to_wait() -> None:
    samples = [WELL, waiting(10.0), waiting(11.9), waiting(12.0)]
    assert trip(samples[:3]) is None
    assert trip(samples) == (12.0, trip(samples)[1])  # type: ignore[index]
    assert verdicts(samples[:2])[-1][1] == Hold(deadline=12.0)


def test_a_gap_between_two_looks_is_no_stall_when_something_was_completed_in_it() -> None:
    assert trip([waiting(0.0, 6, 5), waiting(60.0, 900, 899), waiting(61.9, 900, 899)]) is None


def test_more_completed_than_published_is_a_call_that_ended_between_two_reads() -> None:
    assert trip([Sample(float(at), Counters(5, 6, 0), FILE) for at in range(10)]) is None


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (replace(WELL, unreadable="removed"), Rule.FILE_UNREADABLE),
        (replace(WELL, counters=None, unreadable="short"), Rule.FILE_UNREADABLE),
        (replace(WELL, counters=None), Rule.FILE_UNREADABLE),
        (replace(WELL, file=FileId(7, 12)), Rule.FILE_REPLACED),
        (replace(WELL, sidecar=Sidecar.GONE), Rule.SIDECAR_GONE),
        (replace(WELL, sidecar=Sidecar.PAUSED), Rule.SIDECAR_PAUSED),
        (replace(WELL, sidecar=Sidecar.UNKNOWN), None),
        (WELL, None),
    ],
)
def test_what_cannot_be_seen_to_be_well_is_killed_in_boot_and_in_service_and_left_to_its_stop_on_standby(
    sample: Sample, expected: Rule | None
) -> None:
    assert rule(WELL, sample) is expected
    assert rule(WELL, sample, mode=Mode.BOOT) is expected
    assert rule(WELL, sample, mode=Mode.STANDBY) is None
    of_the_file = expected in (Rule.FILE_UNREADABLE, Rule.FILE_REPLACED)
    assert rule(WELL, replace(sample, serving=False)) is (expected if of_the_file else None)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("serving", [True, False])
def test_a_timeout_kills_in_every_mode_and_whatever_else_is_wrong(mode: Mode, serving: bool) -> None:
    late = Sample(1.0, Counters(6, 5, 1), None, "removed", Sidecar.GONE, serving)
    assert rule(WELL, late, mode=mode) is Rule.TIMEOUT


def test_a_boot_may_compile_for_minutes_and_a_standby_for_ever() -> None:
    last = BOOT_STALL_S + STALL_S
    assert rule(waiting(0.0), waiting(BOOT_STALL_S - 1), mode=Mode.BOOT) is None
    assert rule(waiting(0.0), waiting(last), mode=Mode.BOOT) is Rule.STALL
    assert rule(waiting(0.0), waiting(last), mode=Mode.STANDBY) is None


def test_a_call_that_a_dead_server_left_does_not_count_against_the_next_one() -> None:
    found = [waiting(0.0), replace(waiting(1.0), serving=False), waiting(100.0), waiting(101.9)]
    assert trip(found) is None


def test_the_words_are_read_little_endian_and_signed() -> None:
    data = bytes(range(1, 9)) + WORDS.pack(0, 1, 2, 3, 4, 5, 6)[:48]
    assert decode(data) == Counters(0x0807060504030201, 0, 1, 2, 3, 4, 5)
    assert decode(data[:55]) is None
    assert decode(WORDS.pack(0, 0, 0, 0, 0, 0, -1)) is None


def test_the_mean_wait_is_in_milliseconds_and_unknown_before_the_first() -> None:
    assert Counters(0, 0, 0).mean_wait_ms is None
    assert Counters(3, 3, 0, wait_ns=45_000, waits=3).mean_wait_ms == 0.015  # the published mean


LOOKS = st.lists(st.floats(0.001, 10.0), min_size=2, max_size=60)


@given(looks=LOOKS, calls=st.lists(st.integers(0, 3), min_size=60, max_size=60), ahead=st.integers(0, 2))
def test_whatever_completes_something_between_any_two_looks_is_never_killed(
    looks: Sequence[float], calls: Sequence[int], ahead: int
) -> None:
    """The looks may be seconds apart (a machine that swaps), the calls may wait at every one of them."""
    at, completed, samples = 0.0, 0, []
    for gap, more in zip(looks, calls, strict=False):
        at, completed = at + gap, completed + 1 + more
        samples.append(waiting(at, completed + ahead, completed))
    assert trip(samples) is None


@given(looks=LOOKS, restarts=st.sets(st.integers(0, 59)))
def test_a_lane_that_idles_is_never_killed_however_often_its_server_zeroes_the_counters(
    looks: Sequence[float], restarts: set[int]
) -> None:
    at, count, samples = 0.0, 5, []
    for index, gap in enumerate(looks):
        at, count = at + gap, 0 if index in restarts else count + 1
        samples.append(waiting(at, count, count))
    assert trip(samples) is None


@given(
    work=st.lists(st.floats(0.01, 0.99), max_size=30),
    look_s=st.floats(0.001, 0.5),
    late=st.lists(st.floats(0.0, 0.2), max_size=200),
    stall_s=st.floats(0.05, 5.0),
)
def test_a_stall_trips_within_one_look_of_its_deadline_and_never_before(
    work: Sequence[float], look_s: float, late: Sequence[float], stall_s: float
) -> None:
    """A call always waits. The sidecar completes one after another, each in less than `stall_s`, and then no more.
    The looks are made as the watcher makes them: every `look_s`, at the deadline at the latest, each a bit late."""
    done = list(accumulate(share * stall_s for share in work))
    frozen = done[-1] if done else 0.0
    at, known, lateness = 0.0, Known(), iter(late)
    while True:
        completed = bisect_right(done, at)
        verdict, known = judge(known, waiting(at, completed + 1, completed), Mode.SERVING, stall_s)
        if isinstance(verdict, Trip):
            break
        assert isinstance(verdict, Hold)
        assert verdict.deadline is not None
        at = min(at + look_s, verdict.deadline) + next(lateness, 0.0)
    worst = max(late, default=0.0)
    assert verdict.rule is Rule.STALL
    assert frozen + stall_s <= at <= frozen + stall_s + look_s + 2 * worst + 1e-9
