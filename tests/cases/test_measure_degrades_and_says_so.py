"""A server that refuses a field is asked without it, once, before anything is measured; what is lost is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanectl.errors import LaneError
from lanectl.measure.client import RequestShape
from lanectl.measure.results import notes
from tests.support.measuring import measure
from tests.support.mock_engine import MODEL, Behaviour, MockEngine

EXACT, EXACT_WITHOUT_IDS, TOTAL_ONLY = "token_ids", "continuous_usage", "final_usage"


@pytest.mark.parametrize(
    ("refuses", "source", "guard"),
    [
        ({"return_token_ids"}, EXACT_WITHOUT_IDS, "salt"),
        ({"return_token_ids", "continuous_usage_stats"}, TOTAL_ONLY, "salt"),
        ({"cache_salt"}, EXACT, "none"),
        ({"seed"}, EXACT, "salt"),
        ({"return_token_ids", "continuous_usage_stats", "cache_salt", "seed"}, TOTAL_ONLY, "none"),
    ],
)
def test_a_refused_field_is_dropped_once_and_recorded(
    tmp_path: Path, refuses: set[str], source: str, guard: str
) -> None:
    with MockEngine(Behaviour(refuses=frozenset(refuses), step_s=0.001)) as engine:
        measured = measure(engine.url, tmp_path)
    assert {cell.status for cell in measured.cells} == {"ok"}
    assert measured.conditions["token_source"] == source
    assert measured.conditions["cache_guard"] == guard
    assert measured.conditions["fields_refused"] == sorted(refuses)
    tried = [body for body in engine.bodies if refuses & (set(body) | set(body["stream_options"]))]
    assert len(tried) == len(refuses), "each refused field costs one question, and none after the preflight"
    assert engine.bodies[: len(tried)] == tried
    assert any(note.startswith("the server refused ") for note in notes(measured))


def test_without_chunk_sizes_only_what_needs_them_is_unknown(tmp_path: Path) -> None:
    ignored = frozenset({"return_token_ids", "continuous_usage_stats"})
    with MockEngine(Behaviour(ignores=ignored, step_s=0.001)) as engine:
        measured = measure(engine.url, tmp_path)
    assert measured.conditions["token_source"] == TOTAL_ONLY
    assert measured.conditions["fields_refused"] == []
    for metric in ("single_stream_tps", "e2e_tps.median", "ttft_s.median", "step_ms.itl"):
        assert measured.value("one-a", metric) is not None, metric
    for metric in ("decode_tps.geomean", "tpot_ms.median", "step_ms.client", "tokens_per_step"):
        assert measured.value("one-a", metric) is None, metric
    assert measured.value("burst-32", "burst_total_tps") is not None
    assert measured.value("burst-32", "burst_steady_tps") is None


def test_a_400_for_another_reason_is_not_asked_again(tmp_path: Path) -> None:
    with MockEngine(Behaviour(status=400)) as engine:
        with pytest.raises(LaneError, match="cannot answer one token: http: status 400"):
            measure(engine.url, tmp_path)
        assert len(engine.bodies) == 1


def test_a_needed_field_is_never_dropped(tmp_path: Path) -> None:
    with MockEngine(Behaviour(refuses=frozenset({"max_tokens"}))) as engine:
        with pytest.raises(LaneError, match="max_tokens"):
            measure(engine.url, tmp_path)
        assert len(engine.bodies) == 1


def test_a_shape_names_only_fields_that_it_still_sends() -> None:
    shape = RequestShape(MODEL, 1, dropped=frozenset({"seed"}))
    assert shape.refused_by("unknown fields: seed, cache_salt") == {"cache_salt"}
