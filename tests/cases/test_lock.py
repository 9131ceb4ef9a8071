"""The site's lock: the kernel says who holds it, the text inside is for people."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lanectl.actions.operation import locked
from lanectl.errors import Busy, ExitCode
from lanectl.store.files import StoreError
from lanectl.store.lock import Lock
from lanectl.store.process import ProcessId, alive, identify, this_process
from lanectl.store.process import signal as send
from tests.support.fake_station import FakeSite
from tests.support.poll import until

HOLD = """
import sys, time
from pathlib import Path
from lanectl.store.lock import Lock
lock = Lock(Path(sys.argv[1]))
lock.acquire(command="swap gracetier", swap="s1", phase="BOOTED")
print("held", flush=True)
time.sleep(600)
"""


def hold(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_holder_is_named_and_the_exit_code_is_75(tmp_path: Path) -> None:
    owner = hold(tmp_path / "lock")
    try:
        with pytest.raises(Busy) as refused:
            Lock(tmp_path / "lock").acquire()
        assert refused.value.exit_code is ExitCode.BUSY == 75
        for part in (str(owner.pid), "swap gracetier", "s1", "BOOTED"):
            assert part in refused.value.message
    finally:
        owner.kill()
        owner.wait()


def test_T35_an_operation_says_its_phase_from_the_moment_it_has_the_lock(tmp_path: Path) -> None:
    station = FakeSite(tmp_path).station("swap", "cand")
    with locked(station), pytest.raises(Busy, match=r"lanectl swap cand .*since .*phase STARTING"), locked(station):
        pass


def test_T35_a_killed_owner_leaves_no_lock_behind(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    owner = hold(path)
    holder = Lock(path).holder()
    assert holder is not None
    assert (holder.pid, holder.phase, holder.process) == (owner.pid, "BOOTED", identify(owner.pid))
    owner.kill()
    owner.wait()
    assert json.loads(path.read_text())["pid"] == owner.pid, "the text is stale on purpose here"
    assert Lock(path).holder() is None
    with Lock(path) as lock:
        assert lock.held


def test_T35_a_text_that_names_a_living_process_is_no_lock(tmp_path: Path) -> None:
    """A reused pid, or an editor's leftovers: the text names a process that lives, and nobody holds the lock."""
    path = tmp_path / "lock"
    with Lock(path):
        text = path.read_bytes()
    path.write_bytes(text)
    assert json.loads(text)["pid"] == os.getpid()
    assert Lock(path).holder() is None
    Lock(path).acquire()


def test_T35_a_text_of_a_dead_process_does_not_free_a_held_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    owner = hold(path)
    try:
        text = json.loads(path.read_text())
        path.write_text(json.dumps(text | {"start_time": text["start_time"] - 1}))
        holder = Lock(path).holder()
        assert holder is not None
        assert holder.pid == 0, "held, by whom cannot be told"
        with pytest.raises(Busy, match="has not said who it is"):
            Lock(path).acquire()
    finally:
        owner.kill()
        owner.wait()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"pid": "1"}', b"{}"])
def test_damaged_text_neither_frees_nor_holds(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "lock"
    path.write_bytes(text)
    assert Lock(path).holder() is None
    with Lock(path) as lock:
        path.write_bytes(text)
        assert Lock(path).holder() is not None
        lock.update(phase="READY")
        holder = Lock(path).holder()
        assert holder is not None
        assert (holder.phase, holder.pid) == ("READY", os.getpid())


def test_a_shorter_text_leaves_nothing_of_the_longer_one(tmp_path: Path) -> None:
    with Lock(tmp_path / "lock") as lock:
        lock.update(phase="A" * 500)
        lock.update(phase="B")
        assert json.loads((tmp_path / "lock").read_text())["phase"] == "B"


def test_waiting_gets_the_lock_as_soon_as_it_is_free(tmp_path: Path) -> None:
    first = Lock(tmp_path / "lock")
    first.acquire()
    second = Lock(tmp_path / "lock")
    thread = threading.Thread(target=second.acquire, kwargs={"blocking": True, "deadline_s": 30.0})
    thread.start()
    first.release()
    thread.join()
    assert second.held


def test_looking_at_a_free_lock_never_makes_somebody_else_busy(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            Lock(path).holder()

    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(50):
            with Lock(path) as lock:
                assert lock.held
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()


def test_the_lock_does_not_pass_to_a_child(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = Lock(path)
    lock.acquire()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        lock.release()
        assert Lock(path).holder() is None
    finally:
        child.communicate()


def test_the_file_stays_the_same_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with Lock(path):
        before = path.stat()
    with Lock(path):
        after = path.stat()
    assert (before.st_ino, before.st_mode & 0o777) == (after.st_ino, 0o600)


def test_a_link_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic"):
        Lock(tmp_path / "lock").acquire()
    assert not (tmp_path / "elsewhere").exists()


def test_a_process_is_known_by_more_than_its_pid() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = identify(child.pid)
    assert known is not None
    assert alive(known)
    for other in (
        ProcessId(known.pid, known.start_time + 1, known.boot_id),
        ProcessId(known.pid, known.start_time, "another boot"),
    ):
        assert not alive(other)
        assert send(other, signal.SIGKILL) is False
    assert child.poll() is None, "the signal for another process of this pid must not have reached it"
    assert send(known, signal.SIGTERM) is True
    until(lambda: not alive(known), 10, "the child, not reaped yet, counts as ended")
    assert child.wait() == -signal.SIGTERM
    assert send(known, signal.SIGTERM) is False
    assert alive(this_process())
