"""A whole profile: the same shape for every server, voids where something failed, every number from raw records."""

from __future__ import annotations

import gc
import json
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanectl.errors import ExitCode, LaneError, Unreachable
from lanectl.measure.profiles import SET_A, SET_B, SET_WARMUP
from lanectl.measure.results import notes, table
from tests.support.measuring import ALL_SOON, measure, small
from tests.support.mock_engine import FINGERPRINT, Behaviour, MockEngine
from tests.support.poll import until

CELLS = ["one-a", "one-b", "burst-8", "burst-32", "one-a-again"]


def raw_records(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "raw.jsonl").read_text().splitlines()]
    assert lines[0]["kind"] == "run"
    return [line for line in lines if line["kind"] == "request"]


def test_every_cell_is_measured_in_the_order_of_the_protocol(tmp_path: Path) -> None:
    said: list[str] = []
    with MockEngine(Behaviour(step_s=0.002, per_chunk=3, drafts=True)) as engine:
        measured = measure(engine.url, tmp_path, progress=said.append)
    assert [cell.id for cell in measured.cells] == CELLS
    assert [cell.n for cell in measured.cells] == [2, 2, 8, 32, 2]
    assert {cell.status for cell in measured.cells} == {"ok"}
    assert {row.status for row in measured.rows} == {"ok"}
    for row in measured.rows:
        assert row.n > 0, row
        assert row.formula, row
        # Answers as short as these need not have a moment when all 32 are being written.
        assert row.metric == "burst_steady_tps" or (row.value is not None and row.value > 0), row
    order = list(dict.fromkeys(record["cell"] for record in raw_records(tmp_path)))
    assert order == ["preflight", "warm-up", *CELLS]
    assert said[0] == "warm-up 1 of 2: request 1 of 2"
    assert "burst-32: running" in said
    assert measured.value("one-a", "tokens_per_step") == pytest.approx(2.5)  # 8 tokens: 3, 3, 2, less the first chunk
    assert measured.value("one-a", "acceptance_length") == pytest.approx(1 + 5 / 3)
    assert measured.value("one-a", "acceptance_rate") == pytest.approx(5 / 15)
    assert measured.value("one-a", "step_ms.itl") == pytest.approx(2.0)
    assert measured.value("lane", "kv_cache_tokens") == 8_400_000
    assert measured.conditions["fingerprints"] == [FINGERPRINT]
    assert measured.conditions["token_source"] == "token_ids"
    assert measured.conditions["cache_guard"] == "salt"
    assert json.loads(json.dumps(measured.to_json()))["profile"] == "quick"


def test_each_rate_can_be_computed_again_from_the_raw_records(tmp_path: Path) -> None:
    with MockEngine(Behaviour(step_s=0.002, per_chunk=2)) as engine:
        measured = measure(engine.url, tmp_path)
    records = raw_records(tmp_path)
    burst = [record for record in records if record["cell"] == "burst-8"]
    span = max(r["t_last_token"] for r in burst) - min(r["t_send"] for r in burst)
    assert measured.value("burst-8", "burst_total_tps") == pytest.approx(8 * 8 / span * 1e9)
    waits = sorted(r["t_first_token"] - r["t_send"] for r in burst)
    assert measured.value("burst-8", "ttft_s.worst") == pytest.approx(waits[-1] / 1e9)
    assert measured.value("burst-8", "ttft_s.median") == pytest.approx((waits[3] + waits[4]) / 2e9)
    one = [record for record in records if record["cell"] == "one-b"]
    busy = sum(r["t_last_token"] - r["t_send"] for r in one)
    assert measured.value("one-b", "single_stream_tps") == pytest.approx(2 * 8 / busy * 1e9)
    sends = [r["t_send"] for r in burst]
    spread_ms = (max(sends) - min(sends)) / 1e6
    assert measured.value("burst-8", "start_spread_ms") == pytest.approx(spread_ms)


def test_no_two_requests_share_a_salt_and_warm_up_has_its_own_prompts(tmp_path: Path) -> None:
    with MockEngine() as engine:
        measure(engine.url, tmp_path)
    salts = [body["cache_salt"] for body in engine.bodies]
    assert len(set(salts)) == len(salts) == 1 + 2 * 2 + 2 + 2 + 8 + 32 + 2
    assert all(len(salt) == 32 for salt in salts)
    warm = {prompt.text for prompt in SET_WARMUP.load()}
    asked = [body["messages"][0]["content"] for body in engine.bodies]
    assert set(asked[:5]) <= warm
    assert not set(asked[5:]) & warm
    assert asked[-2:] == asked[5:7] == [prompt.text for prompt in SET_A.load()[:2]]
    burst = [prompt.text for prompt in (*SET_A.load(), *SET_B.load())[:32]]
    assert sorted(asked[17:49]) == sorted(burst)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Behaviour(error_at=2), "error_event"),
        (Behaviour(end_at=2), "no_done"),
        (Behaviour(status=503), "http: status 503"),
    ],
)
def test_one_failed_request_voids_its_cell_and_no_other(tmp_path: Path, fault: Behaviour, reason: str) -> None:
    victim = SET_B.load()[3].text  # only the burst of 32 reaches it
    with MockEngine(replace(fault, fails_on=victim)) as engine:
        measured = measure(engine.url, tmp_path)
    assert [cell.id for cell in measured.void_cells] == ["burst-32"]
    cell = measured.void_cells[0]
    assert cell.reason is not None
    assert cell.reason.startswith("1 of 32 requests failed; lanectl-burst-32-23-")
    assert reason in cell.reason
    assert cell.completion_tokens is None
    for row in measured.rows:
        void = row.cell == "burst-32"
        assert (row.status, row.value is None) == (("void", True) if void else ("ok", row.value is None)), row
        assert not void or row.reason == cell.reason
    assert {row.metric for row in measured.rows if row.cell == "burst-32"} == {
        row.metric for row in measured.rows if row.cell == "burst-8"
    }
    assert [check.verdict for check in cell.checks] == ["unknown", "pass"] or reason.startswith("http")
    shown = {label: value for label, value, _ in table(measured)}
    assert shown["32 streams, total"] == "void"
    assert shown["first token at 32 streams, median / worst"] == "void / void"
    assert any(note.startswith("burst-32 is void: 1 of 32") for note in notes(measured))


def test_a_one_stream_cell_stops_at_its_first_failure(tmp_path: Path) -> None:
    victim = SET_A.load()[1].text
    with MockEngine(Behaviour(error_at=2, fails_on=victim)) as engine:
        measured = measure(engine.url, tmp_path, small(requests=4))
    assert [(cell.id, cell.n) for cell in measured.void_cells] == [
        ("one-a", 2),
        ("burst-8", 8),
        ("burst-32", 32),
        ("one-a-again", 2),
    ]


def test_after_a_hang_the_rest_is_void_and_not_waited_for(tmp_path: Path) -> None:
    victim = SET_A.load()[0].text
    with MockEngine(Behaviour(hang_at=2, fails_on=victim)) as engine:
        measured = measure(engine.url, tmp_path, small(deadlines=ALL_SOON, settle_s=0.3))
    assert [cell.id for cell in measured.void_cells] == CELLS
    assert "deadline: not finished within 0.8 s" in str(measured.cells[0].reason)
    assert {cell.reason for cell in measured.cells[1:]} == {"not run: one-a: deadline: not finished within 0.8 s"}
    assert {cell.n for cell in measured.cells[1:]} == {0}


def test_a_failed_warm_up_voids_everything(tmp_path: Path) -> None:
    victim = SET_WARMUP.load()[1].text
    with MockEngine(Behaviour(error_at=2, fails_on=victim)) as engine:
        measured = measure(engine.url, tmp_path)
    assert {cell.reason for cell in measured.cells} == {
        'warm-up failed: error_event: {"error":{"message":"engine died","code":500}}'
    }
    assert all(row.value is None for row in measured.rows if row.cell != "lane")


def test_an_operators_stop_ends_it_all_and_keeps_what_was_recorded(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    collecting: list[bool] = []
    before = threading.active_count()
    with MockEngine(Behaviour(hang_at=1, fails_on=SET_B.load()[3].text)) as engine:

        def check() -> None:
            collecting.append(gc.isenabled())
            if len(engine.bodies) == 17 + 32 and engine.counts["running"] == 1:
                raise Stop

        with pytest.raises(Stop):
            measure(engine.url, tmp_path, check=check)
    until(lambda: threading.active_count() <= before, 10, "all threads ended")
    assert gc.isenabled()
    assert False in collecting, "the collector rests while streams are read"
    assert [record["cell"] for record in raw_records(tmp_path)].count("burst-8") == 8


def test_the_key_is_sent_and_never_kept(tmp_path: Path) -> None:
    with MockEngine() as engine:
        measured = measure(engine.url, tmp_path, api_key="sk-very-secret")
    assert {headers.get("Authorization") for headers in engine.headers} == {"Bearer sk-very-secret"}
    assert "very-secret" not in (tmp_path / "raw.jsonl").read_text() + json.dumps(measured.to_json())


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(tmp_path: Path) -> None:
    with pytest.raises(LaneError) as refused:
        measure("http://127.0.0.1:1", tmp_path, api_key="sk-very\nsecret")
    assert refused.value.exit_code == ExitCode.USAGE
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "http://host:99999", "http://[bad"])
def test_an_address_that_is_none_is_a_usage_error(tmp_path: Path, url: str) -> None:
    with pytest.raises(LaneError) as refused:
        measure(url, tmp_path)
    assert refused.value.exit_code == ExitCode.USAGE


def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable):
            measure(f"http://127.0.0.1:{taken.getsockname()[1]}", tmp_path)


def test_a_server_with_another_model_or_no_answer_failed_as_a_candidate(tmp_path: Path) -> None:
    with MockEngine(Behaviour(status=500)) as engine:
        with pytest.raises(LaneError, match="cannot answer one token: http: status 500") as failed:
            measure(engine.url, tmp_path)
        assert failed.value.exit_code == ExitCode.CANDIDATE
        with pytest.raises(LaneError, match="does not serve 'other' but mock") as wrong:
            from lanectl.measure.run import run_profile

            run_profile(
                base_url=engine.url,
                model="other",
                profile=small(),
                raw_path=tmp_path / "raw.jsonl",
                check=lambda: None,
                progress=lambda line: None,
            )
        assert wrong.value.exit_code == ExitCode.CANDIDATE


def test_importing_it_costs_no_heavy_module() -> None:
    heavy = "{'prometheus_client', 'requests', 'docker', 'numpy', 'yaml', 'rich', 'typer'}"
    code = f"import sys, lanectl.measure.run; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
