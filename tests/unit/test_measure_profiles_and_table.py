"""Profiles are the published protocol, on prompts that cannot change unnoticed; the table reads like the published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lanectl.errors import ExitCode, LaneError
from lanectl.measure.profiles import (
    PROFILE_NAMES,
    SET_A,
    SET_B,
    SET_WARMUP,
    PromptSet,
    profile_named,
)
from lanectl.measure.results import KV_CELL, CellResult, Check, MeasuredProfile, Row, notes, table

PUBLISHED = {
    ("one-a", "single_stream_tps"): 414.2,
    ("one-b", "single_stream_tps"): 410.4,
    ("one-a-again", "single_stream_tps"): 414.4,
    ("one-a", "step_ms.client"): 7.65,
    ("one-b", "step_ms.client"): 7.64,
    ("burst-8", "burst_total_tps"): 909.0,
    ("burst-32", "burst_total_tps"): 1733.3,
    ("burst-32", "ttft_s.median"): 1.23,
    ("burst-32", "ttft_s.worst"): 1.38,
    (KV_CELL, "kv_cache_tokens"): 8_400_000,
}


def measured(values: dict[tuple[str, str], float | None], **more: object) -> MeasuredProfile:
    rows = tuple(Row(cell, metric, value, "", 20, "ok", None, metric) for (cell, metric), value in values.items())
    empty = MeasuredProfile("general", "", "m", rows, (), {"fields_refused": [], "token_source": "token_ids"})
    return replace(empty, **more)  # type: ignore[arg-type]


def cell(**more: object) -> CellResult:
    good = CellResult("burst-32", 32, 32, "ok", None, 900, 8192, {"length": 32}, 1.0, 0, True, ())
    return replace(good, **more)  # type: ignore[arg-type]


def test_the_table_is_the_published_one() -> None:
    assert table(measured(PUBLISHED)) == [
        ("1 stream, prompt set A / set B", "414.2 / 410.4", "tok/s"),
        ("1 stream, set A again later", "414.4", "tok/s"),
        ("engine step at 1 stream, set A / set B", "7.65 / 7.64", "ms"),
        ("8 streams, total", "909.0", "tok/s"),
        ("32 streams, total", "1,733.3", "tok/s"),
        ("first token at 32 streams, median / worst", "1.23 / 1.38", "s"),
        ("conversation memory (KV cache)", "8,400,000", "tokens"),
    ]


def test_a_value_that_is_not_known_reads_unknown_and_a_missing_cell_has_no_line() -> None:
    lines = table(measured({("one-a", "step_ms.client"): None, ("one-b", "step_ms.client"): 7.64}))
    assert lines == [("engine step at 1 stream, set A / set B", "unknown / 7.64", "ms")]


def test_the_servers_own_step_is_shown_where_it_says_it() -> None:
    """A busy server that hands over several chunks at once makes the client's median gap meaningless."""
    values = {("one-a", "step_ms.client"): 0.001, ("one-a", "step_ms.itl"): 1.79, ("one-a", "step_ms.busy"): 1.96}
    assert table(measured(dict(values)))[0] == ("engine step at 1 stream, set A / set B", "1.79 / unknown", "ms")
    assert table(measured(values | {("one-a", "step_ms.itl"): None}))[0][1] == "1.96 / unknown"


def test_everything_a_reader_must_know_is_noted() -> None:
    failed = Check("foreign_traffic", "fail", "the server generated 2 tokens, 1 of them for this cell")
    unknown = Check("prefix_cache", "unknown", "no counters")
    cases = [
        (cell(), []),
        (cell(status="void", reason="1 of 32 requests failed"), ["burst-32 is void: 1 of 32 requests failed"]),
        (cell(checks=(failed,)), [f"burst-32: foreign_traffic FAILED: {failed.detail}"]),
        (cell(checks=(unknown,)), ["could not be checked in every cell: prefix_cache"]),
        (cell(max_waiting=8), ["burst-32: up to 8 requests waited in the server's queue"]),
        (
            cell(finish_reasons={"length": 27, "stop": 5}),
            ["burst-32: 5 of 32 answers ended by themselves, before the last token asked for"],
        ),
    ]
    for one, expected in cases:
        assert notes(measured({}, cells=(one,))) == expected
    refused = {"fields_refused": ["seed"], "token_source": "final_usage"}
    assert notes(measured({}, conditions=refused)) == ["the server refused seed (token counts: final_usage)"]


def test_general_is_the_published_protocol() -> None:
    general = profile_named("general")
    assert (general.max_tokens, general.warmup_passes) == (256, 2)
    assert [(one.id, one.streams, one.requests) for one in general.cells] == [
        ("one-a", 1, 20),
        ("one-b", 1, 20),
        ("burst-8", 8, 8),
        ("burst-32", 32, 32),
        ("one-a-again", 1, 20),
    ]
    assert general.cells[0].prompts() == SET_A.load()
    assert general.cells[1].prompts() == SET_B.load()
    assert general.warmup.prompts() == SET_WARMUP.load()


def test_quick_has_the_same_cells_and_says_that_it_is_a_demonstration() -> None:
    quick, general = profile_named("quick"), profile_named("general")
    assert [(one.id, one.streams) for one in quick.cells] == [(one.id, one.streams) for one in general.cells]
    assert "demonstration" in quick.summary
    tokens = quick.max_tokens * (quick.warmup_passes * 6 + sum(one.requests for one in quick.cells))
    assert tokens < 9000, "at 1,500 tokens a second this takes at most 6 s"


def test_the_prompts_are_three_sets_of_twenty_and_no_prompt_is_in_two() -> None:
    sets = [prompts.load() for prompts in (SET_A, SET_B, SET_WARMUP)]
    assert [len(prompts) for prompts in sets] == [20, 20, 20]
    every = [prompt for prompts in sets for prompt in prompts]
    assert len({prompt.text for prompt in every}) == 60
    assert len({prompt.id for prompt in every}) == 60
    kinds = [{prompt.kind for prompt in prompts} for prompts in sets]
    assert kinds[0] == kinds[1] == kinds[2]
    assert {"code", "sql", "cooking", "law", "translation", "poetry", "maths", "history"} <= kinds[0]


def test_prompts_that_changed_are_refused() -> None:
    with pytest.raises(LaneError, match=r"a\.jsonl"):
        PromptSet("a.jsonl", "0" * 64).load()


def test_an_unknown_profile_is_a_usage_error_that_names_the_known_ones() -> None:
    assert PROFILE_NAMES == ("general", "quick")
    with pytest.raises(LaneError) as refused:
        profile_named("quik")
    assert refused.value.exit_code == ExitCode.USAGE
    assert refused.value.hint == "known profiles: general, quick"
