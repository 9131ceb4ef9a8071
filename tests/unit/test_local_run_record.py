"""What a supervisor writes: a run record that is always whole, a log that is always bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.engine import shim


def record_of(directory: Path) -> dict[str, Any]:
    record = shim.read_record(str(directory))
    assert record is not None
    return record


def test_the_newest_record_is_read_and_none_grows_the_files(tmp_path: Path) -> None:
    for run in range(5):
        shim.write_record(str(tmp_path), {"run": run, "error": "e" * 200 * run})
        assert (record_of(tmp_path)["run"], record_of(tmp_path)["seq"]) == (run, run)
    assert [(tmp_path / slot).stat().st_size for slot in shim.SLOTS] == [shim.SLOT_SIZE] * 2


@given(damage=st.data())
def test_a_write_cut_short_anywhere_leaves_the_record_before_it(
    tmp_path_factory: pytest.TempPathFactory, damage: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("run")
    for state in ("created", "created", "running"):
        shim.write_record(str(folder), {"run": 1, "state": state})
    newest = folder / shim.SLOTS[record_of(folder)["seq"] % 2]
    before = newest.read_bytes()
    shim.write_record(str(folder), {"run": 1, "state": "exited"})
    newest = folder / shim.SLOTS[record_of(folder)["seq"] % 2]
    after = newest.read_bytes()
    cut = damage.draw(st.integers(0, len(after)))
    newest.write_bytes(after[:cut] + before[cut:])
    assert record_of(folder)["state"] in ("running", "exited")
    flipped = bytearray(after)
    flipped[damage.draw(st.integers(0, len(json.dumps(record_of(folder))) - 1))] ^= damage.draw(st.integers(1, 127))
    newest.write_bytes(flipped)
    assert record_of(folder)["state"] in ("running", "exited")


def test_two_damaged_slots_are_no_record(tmp_path: Path) -> None:
    assert shim.read_record(str(tmp_path)) is None
    for slot in shim.SLOTS:
        (tmp_path / slot).write_bytes(b"\0" * shim.SLOT_SIZE)
    assert shim.read_record(str(tmp_path)) is None


def written(directory: Path) -> bytes:
    names = (shim.segment_path(str(directory), segment) for segment in shim.segments(str(directory)))
    return b"".join(Path(name).read_bytes() for name in names)


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=700), max_size=30),
    size=st.integers(1, 500),
    files=st.integers(1, 4),
)
def test_the_log_is_bounded_and_ends_with_the_newest_bytes(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], size: int, files: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = shim.Log(str(folder), 1, size, files)
    everything = b""
    for chunk in chunks:
        log.write(chunk)
        everything += chunk
        found = written(folder)
        assert len(shim.segments(str(folder))) <= files
        assert len(found) <= size * files
        assert everything.endswith(found)
        assert len(found) == len(everything) or len(found) > size * (files - 1)
    assert log.dropped == 0


def test_earlier_runs_count_in_the_bound_and_go_first(tmp_path: Path) -> None:
    for run in (1, 2, 3):
        shim.Log(str(tmp_path), run, 10, 3).write(b"%d" % run * 15)
    assert shim.segments(str(tmp_path)) == [(2, 2), (3, 1), (3, 2)]
    assert written(tmp_path) == b"2" * 5 + b"3" * 15


LIMITED = """
import resource, sys
sys.path.append(sys.argv[1])
import shim
log = shim.Log(sys.argv[2], 1, 10**6, 3)
log.write(b"begin\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
for _ in range(3):
    log.write(b"x" * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.write(b"end\\n")
print(log.dropped)
"""


def test_what_cannot_be_written_is_dropped_counted_and_noted(tmp_path: Path) -> None:
    here = str(Path(shim.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LIMITED, here, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "296\n", "4 of 300 bytes fitted"
    assert written(tmp_path).splitlines() == [
        b"begin",
        b"xxxx",
        b"[lanectl: 296 bytes of the log were dropped: the disk was full]",
        b"end",
    ]
