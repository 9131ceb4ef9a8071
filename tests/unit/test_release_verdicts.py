"""When a GPU counts as released: floor, stability, processes, and N/A that is never 0."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lanectl.core.release import STABLE_WITHIN_MIB, GpuSample, Holder, ReleaseState, ReleaseVerdict, judge_release

FLOOR_MIB, STABLE_S = 1046, 5.0
WORKER = Holder(4711, "VLLM::Worker", 242000)


def judged(*readings: tuple[float, int | None, tuple[Holder, ...] | None]) -> ReleaseVerdict:
    return judge_release([GpuSample(*reading) for reading in readings], floor_mib=FLOOR_MIB, stable_s=STABLE_S)


def test_memory_above_the_floor_is_held() -> None:
    verdict = judged((0.0, 7701, ()))
    assert verdict.state is ReleaseState.HELD
    assert "7701 MiB" in verdict.detail


def test_free_for_the_whole_time_is_released() -> None:
    assert judged((0.0, 22, ()), (2.5, 22, ()), (5.0, 22, ())).state is ReleaseState.RELEASED
    assert judged((0.0, 22, ()), (2.5, 22, ()), (4.9, 22, ())).state is ReleaseState.SETTLING


def test_T17_memory_that_still_moves_below_the_floor_is_not_released() -> None:
    moving = [(float(second), 1000 - second * STABLE_WITHIN_MIB, ()) for second in range(8)]
    assert judged(*moving).state is ReleaseState.SETTLING
    assert judged(*moving, *((8.0 + second, 500, ()) for second in range(7))).state is ReleaseState.RELEASED


def test_a_reading_above_the_floor_starts_the_time_anew() -> None:
    readings = [(0.0, 22, ()), (4.0, 9000, ()), (5.0, 22, ()), (9.9, 22, ())]
    assert judged(*readings).state is ReleaseState.SETTLING
    assert judged(*readings, (10.0, 22, ())).state is ReleaseState.RELEASED


def test_T15_a_process_that_is_left_holds_the_gpu_though_memory_is_free() -> None:
    verdict = judged((0.0, 22, ()), (5.0, 22, (WORKER,)))
    assert verdict.state is ReleaseState.HELD
    assert "VLLM::Worker (pid 4711, 242000 MiB)" in verdict.detail


def test_T18_where_memory_reads_na_the_processes_decide() -> None:
    assert judged((0.0, None, (WORKER,))).state is ReleaseState.HELD
    released = judged((0.0, None, ()), (5.0, None, ()))
    assert (released.state, released.basis) == (ReleaseState.RELEASED, "processes")


def test_T18_where_nothing_can_be_read_it_is_unknown_never_free() -> None:
    assert judged((0.0, None, None), (60.0, None, None)).state is ReleaseState.UNKNOWN
    assert judged((0.0, 22, ()), (60.0, None, None)).state is ReleaseState.UNKNOWN


def test_an_unknown_reading_in_between_starts_the_time_anew() -> None:
    assert judged((0.0, 22, ()), (3.0, None, None), (5.0, 22, ())).state is ReleaseState.SETTLING


def test_unreadable_processes_leave_memory_to_decide() -> None:
    assert judged((0.0, 22, None), (5.0, 22, None)).state is ReleaseState.RELEASED


used = st.one_of(st.none(), st.integers(0, 3000))
holders = st.one_of(st.none(), st.just(()), st.just((WORKER,)))


@given(st.lists(st.tuples(used, holders), min_size=1, max_size=12))
def test_released_means_every_reading_of_the_last_seconds_was_free(
    readings: list[tuple[int | None, tuple[Holder, ...] | None]],
) -> None:
    samples = [GpuSample(float(second), *reading) for second, reading in enumerate(readings)]
    verdict = judge_release(samples, floor_mib=FLOOR_MIB, stable_s=STABLE_S)
    if verdict.state is not ReleaseState.RELEASED:
        return
    window = [sample for sample in samples if sample.at >= samples[-1].at - STABLE_S]
    assert samples[-1].at >= STABLE_S
    assert all(sample.known and not sample.holders for sample in window)
    memory = [sample.used_mib for sample in window]
    known = [mib for mib in memory if mib is not None]
    assert known == [] or (len(known) == len(memory) and max(known) <= FLOOR_MIB)
    assert known == [] or max(known) - min(known) <= STABLE_WITHIN_MIB
