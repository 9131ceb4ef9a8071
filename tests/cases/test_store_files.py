"""State files: whole or not at all, on full, read-only and strange file systems too."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.store import files
from lanectl.store.files import AppendLog, StoreError, ensure_dir, read_json, write_atomic, write_json
from tests.support.small_disk import PAGE, fill, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    with small_disk(tmp_path / "disk", pages=4) as mounted:
        if mounted is None:
            pytest.skip("mounting a small file system needs root")
        yield mounted


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_write_atomic_replaces_the_content_and_sets_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "production.json"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == {"production.json"}


def test_a_full_disk_leaves_the_old_content_and_nothing_else(disk: Path) -> None:
    path = disk / "production.json"
    write_atomic(path, b"old")
    filler = fill(disk)
    with pytest.raises(StoreError, match=r"production\.json: No space left") as failed:
        write_atomic(path, b"new" * PAGE)
    assert "free some space" in (failed.value.hint or "")
    assert path.read_bytes() == b"old"
    assert names(disk) == {"production.json", "filler"}
    filler.unlink()
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_read_only_file_system_is_named(disk: Path) -> None:
    write_atomic(disk / "a", b"old")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(StoreError, match="Read-only") as failed:
        write_atomic(disk / "a", b"new")
    assert "mounted read-only" in (failed.value.hint or "")
    with pytest.raises(StoreError, match="Read-only"):
        AppendLog(disk / "a")
    with pytest.raises(StoreError, match="Read-only"):
        ensure_dir(disk / "b")
    assert files.read_bytes(disk / "a") == b"old"


def test_T47_a_full_disk_leaves_no_half_line_and_the_next_one_is_whole(disk: Path) -> None:
    log = AppendLog(disk / "audit.jsonl")
    log.append(b"first")
    filler = fill(disk)
    with pytest.raises(StoreError, match="No space left"):
        log.append(b"second" * PAGE)
    assert (disk / "audit.jsonl").read_bytes() == b"first\n"
    filler.unlink()
    log.append(b"third")
    assert (disk / "audit.jsonl").read_bytes() == b"first\nthird\n"


SHORT_WRITE = """
import resource, sys
from pathlib import Path
from lanectl.store.files import AppendLog, StoreError
log = AppendLog(Path(sys.argv[1]))
log.append(b"a" * 99)
resource.setrlimit(resource.RLIMIT_FSIZE, (150, resource.RLIM_INFINITY))
try:
    log.append(b"b" * 99)
except StoreError as error:
    print(error.message, error.hint)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append(b"c")
"""


def test_T47_a_short_write_is_rolled_back(tmp_path: Path) -> None:
    """The kernel takes 50 of 100 bytes, then refuses the rest."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", SHORT_WRITE, str(tmp_path / "log")], capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert "ulimit" in done.stdout
    assert (tmp_path / "log").read_bytes() == b"a" * 99 + b"\nc\n"


def test_reserved_space_carries_appends_over_a_full_disk(disk: Path) -> None:
    reserve = disk / "reserve"
    files.reserve(reserve, PAGE)
    log = AppendLog(disk / "journal.jsonl", reserve_path=reserve)
    fill(disk)
    lines = [b"%05d" % number + b"x" * 1000 for number in range(40)]
    for line in lines:
        log.append(line)
    assert (disk / "journal.jsonl").read_bytes().splitlines() == lines
    assert not reserve.exists()
    assert files.release(reserve) is False


def test_space_that_is_not_there_cannot_be_reserved(disk: Path) -> None:
    with pytest.raises(StoreError, match="No space left"):
        files.reserve(disk / "reserve", 64 * PAGE)
    assert names(disk) == set()


def test_a_torn_last_line_is_cut_off_and_kept_for_the_note(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"one\ntwo\nthr")
    with AppendLog(path) as log:
        assert log.torn == b"thr"
        log.append(b"three")
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    with AppendLog(path) as log:
        assert log.torn == b""


@given(
    whole=st.lists(st.binary(max_size=300).map(lambda line: line.replace(b"\n", b"")), max_size=5),
    torn=st.one_of(
        st.binary(max_size=300).map(lambda line: line.replace(b"\n", b"")),
        st.integers(files.READ_SIZE - 2, 2 * files.READ_SIZE + 2).map(lambda size: b"t" * size),
    ),
)
def test_whatever_a_crash_left_the_lines_stay_whole(
    tmp_path_factory: pytest.TempPathFactory, whole: list[bytes], torn: bytes
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(b"".join(line + b"\n" for line in whole) + torn)
    with AppendLog(path) as log:
        assert log.torn == torn
        log.append(b"next")
    assert path.read_bytes().split(b"\n") == [*whole, b"next", b""]


def test_a_line_has_no_line_end_inside(tmp_path: Path) -> None:
    with AppendLog(tmp_path / "log") as log, pytest.raises(ValueError, match="line end"):
        log.append(b"a\nb")
    assert (tmp_path / "log").read_bytes() == b""


def test_state_files_are_never_reached_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"{}")
    link = tmp_path / "link"
    link.symlink_to(target)
    for use in (
        lambda: write_atomic(link, b"x"),
        lambda: AppendLog(link),
        lambda: read_json(link),
        lambda: files.reserve(link, 10),
    ):
        with pytest.raises(StoreError, match="symbolic") as refused:
            use()
        assert "link" in (refused.value.hint or "")
    assert target.read_bytes() == b"{}"
    assert link.is_symlink()


def test_a_fifo_or_a_directory_in_the_way_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    for name in ("fifo", "dir"):
        with pytest.raises(StoreError, match=name):
            AppendLog(tmp_path / name)
        with pytest.raises(StoreError, match=name):
            read_json(tmp_path / name)


def test_json_files_go_round_and_a_missing_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert read_json(path) is None
    write_json(path, {"current": "pg61", "n": [1, None]})
    assert read_json(path) == {"current": "pg61", "n": [1, None]}
    assert json.loads(path.read_bytes())["current"] == "pg61"


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[]", b"\xff", b"\0" * 10])
def test_a_damaged_file_is_not_taken_for_an_empty_one(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(StoreError, match=r"a\.json is damaged"):
        read_json(tmp_path / "a.json")


def test_directories_are_private_and_existing_ones_stay_as_they_are(tmp_path: Path) -> None:
    ensure_dir(tmp_path / "a" / "b")
    assert {oct((tmp_path / part).stat().st_mode & 0o777) for part in ("a", "a/b")} == {"0o700"}
    (tmp_path / "open").mkdir(mode=0o755)
    ensure_dir(tmp_path / "open")
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o755
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError):
            ensure_dir(path)
