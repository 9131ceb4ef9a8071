"""Gates: what is judged, against which bar, and that no data never passes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.core.gates import (
    CheckRow,
    CosineRule,
    GateVerdict,
    check_rows,
    judge_audit,
    judge_cosine,
    judge_handshake,
)


def line(cos: float | str, *, layer: int = 0, tokens: int = 2342, rows: int = 900, share: float | str = 0.21) -> str:
    return (
        f"INFO 10-21 02:11:07 MEGA_PEER check layer={layer} T={tokens} rows={rows} cold rel_diff=0.0341 "
        f"cos={cos} (cold share of output norm {share})"
    )


def published(least: float, count: int) -> list[str]:
    """As many rows as a published run had, the smallest with its cosine."""
    return [line(0.99977, layer=index % 40) for index in range(count - 1)] + [line(least, layer=20)]


def test_the_published_map_that_passed_passes() -> None:
    result = judge_cosine(check_rows(published(0.99906, 1341)))
    assert (result.verdict, result.value, result.bar) == (GateVerdict.PASS, 0.99906, 0.999)
    assert result.detail.startswith("smallest at layer 20, T=2342, rows=900; 1341 of 1341 rows judged")


def test_the_published_map_that_failed_fails() -> None:
    result = judge_cosine(check_rows(published(0.99885, 1341)))
    assert (result.verdict, result.value) == (GateVerdict.FAIL, 0.99885)


def test_rows_of_few_tokens_are_not_judged_and_it_says_so() -> None:
    """A published log has layer 39 at T=128 rows=16 with 0.99839; at T=16 it would say nothing about the map."""
    lines = [*published(0.99977, 100), line(0.9, tokens=16)]
    result = judge_cosine(check_rows(lines))
    assert result.passed
    assert "100 of 101 rows judged (T >= 65" in result.detail
    assert judge_cosine(check_rows([*lines, line(0.99839, tokens=128, rows=16, layer=39)])).verdict is GateVerdict.FAIL


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ([], GateVerdict.INCONCLUSIVE),
        (["Application startup complete."], GateVerdict.INCONCLUSIVE),
        ([line(1.0, share=0.0)] * 100, GateVerdict.INCONCLUSIVE),  # a profile run on zero input
        ([line(1.0, rows=0)] * 100, GateVerdict.INCONCLUSIVE),
        (published(0.9999, 39), GateVerdict.INCONCLUSIVE),
        (published(0.5, 3), GateVerdict.FAIL),  # one bad row is enough, however few there are
        ([*published(0.9999, 100), line("nan")], GateVerdict.FAIL),
        ([*published(0.9999, 100), line("garbage")], GateVerdict.FAIL),
        (published(0.999, 40), GateVerdict.PASS),  # the bar itself is reached
    ],
)
def test_no_data_is_inconclusive_and_nothing_bad_passes(lines: list[str], verdict: GateVerdict) -> None:
    assert judge_cosine(check_rows(lines)).verdict is verdict


@given(st.lists(st.floats(-1, 1), max_size=120))
def test_a_pass_means_that_every_judged_row_reaches_the_bar(cosines: list[float]) -> None:
    rows = [CheckRow(0, 100, 10, 0.0, cos, 0.2) for cos in cosines]
    result = judge_cosine(rows)
    assert result.passed == (len(rows) >= CosineRule().min_count and all(cos >= 0.999 for cos in cosines))


@given(st.text(max_size=300))
def test_no_log_line_makes_the_reader_raise(text: str) -> None:
    assert all(math.isnan(row.cos) or row.cos == row.cos for row in check_rows([text, line(text)]))


@pytest.mark.parametrize(
    ("checked", "mismatches", "verdict"),
    [
        (300, 0, GateVerdict.PASS),
        (300, 1, GateVerdict.FAIL),
        (0, 0, GateVerdict.INCONCLUSIVE),
        (None, None, GateVerdict.INCONCLUSIVE),
    ],
)
def test_a_byte_audit_of_nothing_proves_nothing(
    checked: int | None, mismatches: int | None, verdict: GateVerdict
) -> None:
    assert judge_audit(checked, mismatches).verdict is verdict


MAP, OTHER = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("manifest", "bound", "said", "verdict"),
    [
        (MAP, {"sidecar": MAP, "server": MAP}, {}, GateVerdict.PASS),
        (MAP, {"sidecar": MAP, "server": MAP}, {"sidecar's log": MAP}, GateVerdict.PASS),
        (MAP, {"sidecar": MAP, "server": MAP}, {"sidecar's log": OTHER}, GateVerdict.FAIL),
        (MAP, {"sidecar": OTHER, "server": MAP}, {}, GateVerdict.FAIL),
        (MAP, {"sidecar": None, "server": MAP}, {}, GateVerdict.INCONCLUSIVE),
        (None, {"server": MAP}, {}, GateVerdict.INCONCLUSIVE),
        (MAP, {}, {}, GateVerdict.INCONCLUSIVE),
    ],
)
def test_the_handshake_wants_one_map_everywhere(
    manifest: str | None, bound: dict[str, str | None], said: dict[str, str], verdict: GateVerdict
) -> None:
    result = judge_handshake(manifest, bound, said)
    assert result.verdict is verdict
    if verdict is GateVerdict.FAIL:
        assert OTHER in result.detail
