"""The local engine and the disk: bounded logs, a full disk, private files, what a crash leaves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.engine import shim
from lanectl.errors import NotThere
from lanectl.store.files import StoreError
from tests.support.local_services import SOON_S, LocalServices, local_services
from tests.support.poll import until
from tests.support.small_disk import fill, small_disk

GRACE_S = 10.0
SMALL_LOG = {"LogConfig": {"Type": "json-file", "Config": {"max-size": "4k", "max-file": "3"}}}
LOG_LIMIT = 3 * 4096


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalServices]:
    with local_services(tmp_path) as services:
        yield services


@pytest.fixture
def on_small_disk(tmp_path: Path) -> Iterator[LocalServices]:
    """Services whose engine's state lies on a file system of 2 MiB."""
    with small_disk(tmp_path / "disk", pages=32) as disk:
        if disk is None:
            pytest.skip("mounting a small file system needs root")
        with local_services(disk) as services:
            yield services


def log_size(local: LocalServices) -> int:
    return sum(path.stat().st_size for path in local.directory("svc").glob("log.*"))


def test_a_service_that_talks_for_ever_fills_no_disk_and_its_last_words_are_kept(local: LocalServices) -> None:
    code = "import sys\nfor number in range(5000): print('line', number)\nsys.exit(3)"
    local.python("svc", code, host=SMALL_LOG)
    assert local.ended("svc").exit_code == 3
    assert log_size(local) <= LOG_LIMIT
    lines = list(local.engine.logs("svc"))
    assert lines[-1] == "line 4999"
    assert lines[1:] == [f"line {number}" for number in range(5000 - len(lines) + 1, 5000)], "no gap, no fused line"


def test_following_crosses_the_files_of_a_log_without_losing_a_line(local: LocalServices) -> None:
    code = "import time\nfor number in range(600):\n    print('line', number); time.sleep(0.001)"
    local.python("svc", code, host=SMALL_LOG)
    assert list(local.engine.logs("svc")) == [f"line {number}" for number in range(600)]
    assert len(shim.segments(str(local.directory("svc")))) > 1


def test_a_full_disk_does_not_block_a_service_nor_its_stop_start_rename_or_exit_code(
    on_small_disk: LocalServices, tmp_path: Path
) -> None:
    local = on_small_disk
    go, done = tmp_path / "go", tmp_path / "done"
    code = """
import os, sys, time
go, done = sys.argv[1:]
print("up")
while not os.path.exists(go): time.sleep(0.01)
for number in range(1000): print("x" * 1000)
open(done, "w")
while True: time.sleep(0.01)
"""
    container_id = local.python("svc", code, str(go), str(done))
    local.lines(container_id, 1)
    filler = fill(local.folder)
    go.touch()
    until(done.exists, SOON_S, "the service wrote a megabyte that nobody could keep")
    assert log_size(local) < 200_000

    assert local.engine.stop("svc", GRACE_S).exit_code == 128 + signal.SIGTERM
    assert local.record("svc")["log_dropped"] > 500_000
    local.engine.rename("svc", "svc.parked.s1")
    assert local.see("svc.parked.s1").id == container_id
    local.engine.rename("svc.parked.s1", "svc")
    local.engine.start("svc")
    assert local.see("svc").running
    with pytest.raises(StoreError, match="No space left"):
        local.engine.create(local.args("other", "/bin/true"))
    assert local.engine.inspect("other") is None

    filler.unlink()
    local.engine.create(local.args("other", "/bin/true"))
    local.engine.kill("svc")
    assert local.see("svc").exit_code == 137


def test_what_was_dropped_is_noted_once_there_is_room_again(on_small_disk: LocalServices, tmp_path: Path) -> None:
    local = on_small_disk
    go, done, room = (str(tmp_path / name) for name in ("go", "done", "room"))
    code = """
import os, sys, time
go, done, room = sys.argv[1:]
print("before")
while not os.path.exists(go): time.sleep(0.01)
for _ in range(1000): print("y" * 1000)
open(done, "w")
while not os.path.exists(room): time.sleep(0.01)
print("after")
"""
    container_id = local.python("svc", code, go, done, room)
    local.lines(container_id, 1)
    filler = fill(local.folder)
    Path(go).touch()
    until(Path(done).exists, SOON_S, "the service wrote more than a pipe and the disk can hold")
    filler.unlink()
    Path(room).touch()
    assert local.ended("svc").exit_code == 0
    lines = list(local.engine.logs("svc"))
    assert lines[0] == "before"
    assert lines[-1] == "after"
    assert any("bytes of the log were dropped: the disk was full" in line for line in lines)


def test_files_are_private(local: LocalServices) -> None:
    local.run("svc", "/bin/echo", "hello", Env=["TOKEN=secret"])
    local.ended("svc")
    for path in [local.root, *local.root.rglob("*")]:
        if not path.is_symlink():
            assert path.stat().st_mode & 0o077 == 0, f"{path} can be read by others"
    assert "TOKEN=secret" in (local.directory("svc") / "config.json").read_text()


def test_T36_what_a_crash_left_is_swept_and_counts_for_nothing(local: LocalServices) -> None:
    kept = local.engine.create(local.args("svc", "/bin/true"))
    for name in ("0" * 64, ".gone-" + "1" * 64):
        (local.root / "containers" / name).mkdir()
        (local.root / "containers" / name / "config.json").write_text("{}")
    assert [container.id for container in local.engine.containers()] == [kept]
    local.engine.create(local.args("other", "/bin/true"))
    assert {path.name for path in (local.root / "containers").iterdir()} == {
        container.id for container in local.engine.containers()
    }


def test_a_running_container_that_lost_its_name_is_not_swept(local: LocalServices) -> None:
    local.run("svc", "/bin/sleep", "1000")
    directory = local.directory("svc")
    name = local.root / "names" / "svc"
    target = name.readlink()
    name.unlink()
    local.engine.create(local.args("other", "/bin/true"))
    assert (directory / "config.json").exists()
    name.symlink_to(target)
    assert local.see("svc").running


def test_the_engines_id_stays(local: LocalServices, tmp_path: Path) -> None:
    first = local.engine.info()
    assert LocalServices(tmp_path).engine.info() == first
    assert first.kind == "local"
    assert first.endpoint == str(local.root)


def test_looking_makes_nothing(tmp_path: Path) -> None:
    engine = LocalServices(tmp_path).engine
    assert engine.containers() == ()
    assert engine.inspect("svc") is None
    with pytest.raises(NotThere):
        engine.logs("svc")
    engine.remove("svc")
    assert not (tmp_path / "state").exists()
