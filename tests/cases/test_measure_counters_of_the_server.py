"""What the server counts is read in every version's names, and disagreement with what was asked is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.measure import metrics
from lanectl.measure.client import Endpoint
from lanectl.measure.metrics import Scrape, parse
from lanectl.measure.results import MeasuredProfile, notes
from lanectl.measure.rows import CellRun, cell_result
from tests.support.measuring import measure, nothing, small
from tests.support.mock_engine import Behaviour, MockEngine


def verdicts(measured: MeasuredProfile, check_id: str) -> set[str]:
    return {check.verdict for cell in measured.cells for check in cell.checks if check.id == check_id}


@pytest.mark.parametrize("names", ["new", "old", "both"])
@pytest.mark.parametrize("engines", [1, 2])
def test_the_same_numbers_come_from_every_versions_names(tmp_path: Path, names: str, engines: int) -> None:
    behaviour = Behaviour(step_s=0.002, metrics=names, hit_share=0.0, engines=engines)
    with MockEngine(behaviour) as engine:
        measured = measure(engine.url, tmp_path)
    assert measured.value("one-a", "step_ms.itl") == pytest.approx(2.0)
    assert verdicts(measured, "foreign_traffic") == {"pass"}
    assert verdicts(measured, "prefix_cache") == {"pass"}
    assert measured.value("lane", "kv_cache_tokens") == 8_400_000
    busy = measured.value("one-a", "step_ms.busy")
    assert (busy is None) == (engines == 2), "steps of several engines do not add up"


def test_a_server_without_metrics_is_measured_and_nothing_is_made_up(tmp_path: Path) -> None:
    with MockEngine(Behaviour(metrics="none", step_s=0.001)) as engine:
        measured = measure(engine.url, tmp_path)
    assert {cell.status for cell in measured.cells} == {"ok"}
    unknown = {row.metric for row in measured.rows if row.value is None}
    unknown -= {"burst_steady_tps"}  # from the chunks alone, and short answers need not have it
    assert unknown == {"step_ms.itl", "step_ms.busy", "acceptance_length", "acceptance_rate", "kv_cache_tokens"}
    assert all(row.reason for row in measured.rows if row.value is None)
    assert verdicts(measured, "foreign_traffic") == {"unknown"}
    assert measured.conditions["max_waiting"] is None
    assert "could not be checked in every cell: foreign_traffic, prefix_cache" in notes(measured)


def test_somebody_elses_tokens_are_shown(tmp_path: Path) -> None:
    with MockEngine(Behaviour(foreign_tokens=1)) as engine:
        measured = measure(engine.url, tmp_path)
    assert verdicts(measured, "foreign_traffic") == {"fail"}
    expected = "one-a: foreign_traffic FAILED: the server generated 18 tokens, 16 of them for this cell"
    assert expected in notes(measured)


@pytest.mark.parametrize(("share", "verdict"), [(0.0, "pass"), (0.5, "fail"), (1.0, "fail")])
def test_prompts_from_the_cache_are_shown(tmp_path: Path, share: float, verdict: str) -> None:
    with MockEngine(Behaviour(hit_share=share)) as engine:
        measured = measure(engine.url, tmp_path)
    assert verdicts(measured, "prefix_cache") == {verdict}


@pytest.mark.parametrize(("hits", "verdict"), [(19, "pass"), (20, "pass"), (21, "fail")])
def test_the_bar_for_cached_prompts_is_two_per_cent(hits: int, verdict: str) -> None:
    def reading(hits: int, queries: int) -> Scrape | None:
        return parse(f"vllm:prefix_cache_hits_total {hits}\nvllm:prefix_cache_queries_total {queries}\n")

    run = CellRun(small().cells[0], (), reading(500, 1000), reading(500 + hits, 2000))
    (found,) = (check for check in cell_result(run).checks if check.id == "prefix_cache")
    assert found.verdict == verdict


def test_a_queue_in_the_server_is_seen(tmp_path: Path) -> None:
    """The October recipe admits 24 requests, so 8 of 32 wait: here for 1.6 s, with looks at 0.2 and 1.2 s."""
    burst = next(cell for cell in small().cells if cell.streams == 32)
    only_the_burst = replace(small(max_tokens=4), warmup_passes=0, cells=(burst,))
    with MockEngine(Behaviour(slots=24, step_s=0.4)) as engine:
        measured = measure(engine.url, tmp_path, only_the_burst)
    waited = measured.cells[0].max_waiting
    assert waited is not None
    assert 8 <= waited <= 32
    assert measured.conditions["max_waiting"] == waited
    assert f"burst-32: up to {waited} requests waited in the server's queue" in notes(measured)


def test_the_kv_cache_size_comes_from_the_metrics_before_the_log(tmp_path: Path) -> None:
    cases = [
        (8_400_000, 2_480_000, 8_400_000, "metrics"),
        (None, 2_480_000, 2_480_000, "log"),
        (None, None, None, None),
    ]
    for published, logged, tokens, source in cases:
        with MockEngine(Behaviour(kv_tokens=published)) as engine:
            measured = measure(engine.url, tmp_path, small(max_tokens=1, requests=1), kv_log_tokens=logged)
        kv = measured.conditions["kv_cache"]
        assert (kv["tokens"], kv["source"]) == (tokens, source)
        assert measured.value("lane", "kv_cache_tokens") == tokens
        assert kv["max_model_len"] == 4096
        assert kv["gpu_memory_utilization"] == (None if published is None else "0.97")


def test_settling_waits_for_rest_and_gives_up_in_time() -> None:
    with MockEngine() as engine:
        endpoint = Endpoint.parse(engine.url)
        reading, at_rest = metrics.settle(endpoint, 10, nothing)
        assert at_rest
        assert reading is not None
        assert reading.total(metrics.GENERATED) == 0
        engine.add(running=1)
        reading, at_rest = metrics.settle(endpoint, 0.2, nothing)
        assert reading is not None
        assert not at_rest
        # Counters that move between two looks are no rest either, though nothing seems to run.
        engine.add(running=-1)
        reading, at_rest = metrics.settle(endpoint, 0.2, lambda: engine.add(generated=1))
        assert not at_rest


def test_a_counter_that_went_down_has_no_increase() -> None:
    before, after = (parse(f"vllm:generation_tokens_total {count}\n") for count in (100, 40))
    assert metrics.increase(before, after, metrics.GENERATED) is None
    assert metrics.increase(after, before, metrics.GENERATED) == 60
    assert metrics.increase(after, before, metrics.DRAFTS) is None
    assert metrics.increase(None, after, metrics.GENERATED) is None


@pytest.mark.parametrize("text", ["", "# nothing\n", "other_metric 3\n"])
def test_metrics_without_vllms_names_are_no_zero(text: str) -> None:
    reading = parse(text)
    assert reading is not None
    assert reading.total(metrics.GENERATED) is None
    assert metrics.kv_cache_tokens(reading, None) == (None, None)


@pytest.mark.parametrize("text", ["<html></html>\n", 'vllm:generation_tokens_total{engine="0" 3\n', "a b c d e\n"])
def test_what_is_no_exposition_is_none(text: str) -> None:
    assert parse(text) is None


def test_a_cache_size_that_is_no_number_falls_back_to_the_log() -> None:
    reading = parse('vllm:cache_config_info{kv_cache_size_tokens="None",num_gpu_blocks="7",block_size="4"} 1\n')
    assert metrics.kv_cache_tokens(reading, 5) == (5, "log")
    assert metrics.kv_cache_tokens(reading, None) == (None, None)
