"""A closed swap is told by the end of its journal alone; anything less plain is looked at in full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lanectl.actions.unfinished import open_swaps
from lanectl.store.journal import is_closed
from tests.support.fake_station import FakeSite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    site = FakeSite(tmp_path)
    site.produce()
    state = site.station().state
    return state.journal(state.swap_ids()[0])


def test_a_closed_journal_is_closed(path: Path) -> None:
    assert is_closed(path)


def test_every_shorter_journal_is_not_nor_is_one_with_half_a_line_more(path: Path) -> None:
    whole = path.read_bytes()
    closing = len(whole.splitlines(keepends=True)[-1])
    for end in range(len(whole) - closing, len(whole)):
        path.write_bytes(whole[:end])
        assert not is_closed(path), end
    path.write_bytes(whole + whole[:10])
    assert not is_closed(path)


def test_a_pipe_in_its_place_keeps_nobody_waiting(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)
    assert not is_closed(path)


@pytest.mark.parametrize("content", [b"", b"\n", b"[]\n", b'{"kind": "opened"}\n', b"\xff\n", b"null\n", b"closed\n"])
def test_what_is_no_closed_record_is_not_closed(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert not is_closed(path)


def test_a_journal_that_is_not_there_is_not_closed(tmp_path: Path) -> None:
    assert not is_closed(tmp_path / "journal.jsonl")


def test_a_thousand_closed_swaps_are_not_read_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = FakeSite(tmp_path)
    site.produce()
    site.lane("cand")
    site.swap("cand")

    def never(path: Path) -> bytes:
        raise AssertionError(f"{path} was read in full")

    monkeypatch.setattr("lanectl.store.journal.read_bytes", never)
    assert open_swaps(site.station()) == ()


def test_a_closed_journal_that_was_damaged_is_not_restored_from(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.produce()
    site.lane("cand")
    assert site.swap("cand").outcome == "proven"
    before = site.seen("prod")
    path = site.station().state.journal(site.station().state.swap_ids()[0])
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], *lines[2:]]))
    assert site.recover().nothing
    assert site.seen("prod") == before
