"""The reference engine's continuous batching: seats, the queue, the end of a text, and what a step reports."""

from __future__ import annotations

from lanectl.reference.messages import Abort, StepReport, Submit
from lanectl.reference.scheduler import Scheduler
from lanectl.reference.tokenizer import END
from tests.support.reference_model import ask, run, scheduler


def reports(engine: Scheduler, arrivals: dict[int, list[Submit | Abort]]) -> list[StepReport]:
    seen: list[StepReport] = []
    run(engine, arrivals, seen.append)
    return seen


def test_requests_beyond_the_seats_wait_and_get_them_in_order() -> None:
    engine = scheduler("--max-num-seqs", "2")
    seen = reports(engine, {0: [ask(number, [10 + number], 4) for number in range(5)]})
    assert (seen[0].running, seen[0].waiting) == (2, 3)
    assert max(report.running for report in seen) == 2
    assert [a.number for report in seen for a in report.admissions] == [0, 1, 2, 3, 4]
    assert (seen[-1].running, seen[-1].waiting, seen[-1].cache_use) == (0, 0, 0.0)


def test_a_request_joins_between_two_steps_and_does_not_wait_for_the_others_to_end() -> None:
    seen = reports(scheduler(), {0: [ask(1, [10], 20)], 5: [ask(2, [11], 3)]})
    assert [output.number for output in seen[5].outputs] == [1, 2]
    ends = [output.number for report in seen for output in report.outputs if output.reason]
    assert ends == [2, 1]


def test_a_request_without_room_in_the_cache_waits_until_another_leaves() -> None:
    engine = scheduler("--kv-cache-memory-bytes", str(700 * 2 * 80 * 4))  # 700 tokens, rounded down to blocks
    seen = reports(engine, {0: [ask(1, [10] * 100, 300), ask(2, [11] * 100, 300)]})
    assert (seen[0].running, seen[0].waiting) == (1, 1)
    assert max(report.running for report in seen) == 1
    assert 0.5 < seen[0].cache_use < 0.7
    assert sum(len(report.outputs) for report in seen) == 600


def test_every_step_and_every_token_is_reported_once() -> None:
    engine = scheduler("--max-num-batched-tokens", "16")
    seen = reports(engine, {0: [ask(1, [10] * 40, 8)]})
    stepped = [report for report in seen if report.stepped]
    assert [report.prompt_tokens for report in stepped] == [16, 16, 8, *[0] * 7]
    assert [len(report.outputs) for report in stepped] == [0, 0, *[1] * 8]


def test_the_end_of_turn_token_ends_a_text() -> None:
    written = run(scheduler(), {0: [ask(1, [10], 9, logit_bias={END: 100.0})]})
    assert written[1] == [END]


def test_min_tokens_keeps_the_end_of_turn_away_until_then() -> None:
    written = run(scheduler(), {0: [ask(1, [10], 9, logit_bias={END: 100.0}, min_tokens=4)]})
    assert len(written[1]) == 5
    assert written[1].index(END) == 4


def test_ignore_eos_writes_on() -> None:
    written = run(scheduler(), {0: [ask(1, [10], 9, logit_bias={END: 100.0}, ignore_eos=True)]})
    assert written[1] == [END] * 9


def test_an_abort_frees_the_seat_and_the_cache_at_the_next_step() -> None:
    engine = scheduler("--max-num-seqs", "1")
    seen = reports(engine, {0: [ask(1, [10], 200), ask(2, [11], 2)], 3: [Abort(1, "abort")]})
    assert [output.number for report in seen for output in report.outputs] == [1, 1, 1, 2, 2]
    assert seen[3].aborted == [Abort(1, "abort")]


def test_an_abort_takes_a_waiting_request_out_of_the_queue() -> None:
    engine = scheduler("--max-num-seqs", "1")
    seen = reports(engine, {0: [ask(1, [10], 5), ask(2, [11], 2)], 1: [Abort(2, "abort")]})
    assert {output.number for report in seen for output in report.outputs} == {1}
    assert [abort.number for report in seen for abort in report.aborted] == [2]


def test_an_abort_of_a_finished_request_does_nothing() -> None:
    seen = reports(scheduler(), {0: [ask(1, [10], 2)], 5: [Abort(1, "abort")]})
    assert [report.aborted for report in seen] == [[]] * len(seen)


def test_top_k_of_one_is_greedy_and_a_hot_text_is_not() -> None:
    greedy = run(scheduler(), {0: [ask(1, [10], 12)]})[1]
    assert run(scheduler(), {0: [ask(1, [10], 12, temperature=5.0, top_k=1, seed=1)]})[1] == greedy
    assert run(scheduler(), {0: [ask(1, [10], 12, temperature=5.0, seed=1)]})[1] != greedy
