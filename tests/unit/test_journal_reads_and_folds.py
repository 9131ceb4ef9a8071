"""The journal: what is read back is what was written; damage is seen; a torn last line is ignored and noted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.core.codec import to_json
from lanectl.core.journal import (
    FIRST_PREV,
    DamagedJournal,
    Kind,
    Planned,
    Record,
    encode,
    fold,
    line_digest,
    read,
)
from lanectl.core.swap import Phase
from tests.support.owed import an_owed

SWAP = "20261129T010203Z-gracetier-abc123"
OPENED = {
    "lane": "gracetier",
    "kind": "swap",
    "command": ["lanectl", "swap", "gracetier"],
    "boot_id": "b",
    "deadline": 100.0,
    "keep": False,
    "from_dark": False,
    "shm": [],
    "candidates": [to_json(Planned("server", "s.candidate", "s", 5.0))],
}


def chain(*steps: tuple[Kind, str, dict[str, object]]) -> list[Record]:
    records, prev = [], FIRST_PREV
    for seq, (kind, step, data) in enumerate(steps, start=1):
        record = Record(seq, f"t{seq}", float(seq), SWAP, kind, step, 1, data, prev)
        records.append(record)
        prev = line_digest(encode(record))
    return records


def written(records: list[Record]) -> bytes:
    return b"".join(encode(record) + b"\n" for record in records)


def a_swap_up_to_booted() -> list[Record]:
    return chain(
        (Kind.OPENED, "", OPENED),
        (Kind.BEGIN, "create:server", {}),
        (Kind.DONE, "create:server", {"id": "c1"}),
        (Kind.PHASE, Phase.PREFLIGHTED, {}),
        (Kind.ARMED, "", {"target": to_json(an_owed()), "guard": 7}),
        (Kind.BEGIN, "stop:server", {}),
        (Kind.DONE, "stop:server", {"how": "term"}),
        (Kind.PHASE, Phase.QUIESCED, {}),
        (Kind.BEGIN, "start:server", {}),
    )


def test_what_was_written_is_read_back() -> None:
    records = a_swap_up_to_booted()
    reading = read(written(records))
    assert reading.records == tuple(records)
    assert not reading.torn
    assert reading.damage is None


def test_the_fold_knows_target_phase_and_the_step_under_way() -> None:
    state = fold(a_swap_up_to_booted())
    assert state.phase is Phase.QUIESCED
    assert state.armed
    assert state.owed == an_owed()
    assert state.pending == "start:server"
    assert state.candidates[0].id == "c1"
    assert state.done["stop:server"] == {"how": "term"}


def test_the_committed_record_changes_what_is_owed() -> None:
    promoted = replace(an_owed(), lane="gracetier")
    steps = [
        (Kind.OPENED, "", OPENED),
        (Kind.PHASE, Phase.PREFLIGHTED, {}),
        (Kind.ARMED, "", {"target": to_json(an_owed()), "guard": 7}),
        *[(Kind.PHASE, phase, {}) for phase in (Phase.QUIESCED, Phase.BOOTED, Phase.READY, Phase.VERIFIED)],
        (Kind.COMMITTED, "", {"target": to_json(promoted)}),
    ]
    state = fold(chain(*steps))
    assert state.committed
    assert state.owed == promoted
    assert state.former == an_owed()


@given(cut=st.integers(min_value=1, max_value=400))
def test_a_torn_last_line_is_ignored_wherever_it_was_cut(cut: int) -> None:
    records = a_swap_up_to_booted()
    content = written(records)
    last = len(encode(records[-1])) + 1
    cut = min(cut, last - 1)
    reading = read(content[:-cut])
    assert reading.records == tuple(records[:-1])
    assert reading.torn
    assert reading.damage is None
    assert reading.whole_bytes == len(content) - last


def test_a_last_line_of_zeros_is_torn_not_damage() -> None:
    content = written(a_swap_up_to_booted())
    assert read(content + b"\0" * 64).torn
    assert read(content + b"\0" * 64 + b"\n").torn


@given(data=st.data())
def test_any_changed_byte_before_the_last_line_is_seen(data: st.DataObject) -> None:
    records = a_swap_up_to_booted()
    content = bytearray(written(records))
    last_line_from = len(content) - len(encode(records[-1])) - 1
    position = data.draw(st.integers(0, last_line_from - 1))
    value = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[position]))
    content[position] = value
    reading = read(bytes(content))
    assert reading.damage is not None or reading.torn
    assert len(reading.records) < len(records)


@pytest.mark.parametrize("gone", range(8))
def test_a_missing_line_is_damage(gone: int) -> None:
    records = a_swap_up_to_booted()
    reading = read(written([record for index, record in enumerate(records) if index != gone]))
    assert reading.damage is not None
    assert reading.records == tuple(records[:gone])


@given(junk=st.binary(max_size=2000))
def test_no_bytes_make_reading_raise(junk: bytes) -> None:
    reading = read(junk)
    assert reading.records == ()


def test_deep_nesting_is_damage_not_a_crash() -> None:
    content = written(a_swap_up_to_booted())
    assert read(content + b"[" * 100_000 + b"\n" + b"{}\n").damage


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([(Kind.BEGIN, "x", {})], "does not begin with an opened"),
        ([(Kind.OPENED, "", {})], "lacks"),
        ([(Kind.OPENED, "", OPENED), (Kind.PHASE, Phase.READY, {})], "cannot follow"),
        ([(Kind.OPENED, "", OPENED), (Kind.OPENED, "", OPENED)], "second opened"),
        ([(Kind.OPENED, "", OPENED), (Kind.PHASE, Phase.PREFLIGHTED, {}), (Kind.ARMED, "", {})], "target"),
        (
            [(Kind.OPENED, "", OPENED), (Kind.CLOSED, "", {"outcome": "refused"}), (Kind.BEGIN, "x", {})],
            "after closed",
        ),
    ],
)
def test_records_that_cannot_be_are_refused(steps: list[tuple[Kind, str, dict[str, object]]], said: str) -> None:
    with pytest.raises(DamagedJournal, match=said):
        fold(chain(*steps))


def test_a_record_of_a_newer_format_is_not_half_understood() -> None:
    line = json.loads(encode(a_swap_up_to_booted()[0]))
    line["surprise"] = 1
    assert read(json.dumps(line).encode() + b"\n" + b"{}\n").damage is not None
