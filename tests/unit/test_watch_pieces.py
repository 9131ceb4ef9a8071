"""The watchdog's small parts: what a look finds, what a watcher leaves to the next one, how a container is judged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.actions.watch_eyes import Seen, first_process
from lanectl.actions.watched import Watched
from lanectl.core.container import Container, Status
from lanectl.core.watch import WORDS, Counters, FileId, Known, Mode, Sidecar
from lanectl.errors import Unreachable
from lanectl.probes.counters import CounterFile
from lanectl.probes.first_process import FirstProcess
from lanectl.probes.machine import shutting_down
from lanectl.store.black_box import BlackBox
from lanectl.store.files import StoreError
from lanectl.store.process import ProcessId, identify
from lanectl.store.watch import Order, WatchedService, WatchFiles, Wish, watch_key
from lanectl.store.watch import Status as Said

SOON_S = 10.0
SIZE = 8192


@pytest.fixture
def counters(tmp_path: Path) -> Path:
    path = tmp_path / "counters"
    path.write_bytes(WORDS.pack(9, 8, 0, 4, 3, 2000, 7).ljust(SIZE, b"\0"))
    return path


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def id_of(process: subprocess.Popen[bytes]) -> ProcessId:
    found = identify(process.pid)
    assert found is not None
    return found


def test_a_look_reads_what_another_process_writes_into_the_file(counters: Path) -> None:
    file = CounterFile(str(counters))
    first = file.look()
    assert first.counters == Counters(9, 8, 0, 4, 3, 2000, 7)
    assert first.unreadable == ""
    with counters.open("r+b") as other:
        other.write(WORDS.pack(10, 10, 1, 0, 0, 0, 0))
    assert file.look().counters == Counters(10, 10, 1)
    file.close()


@pytest.mark.parametrize("size", [0, 8, 55, 56, SIZE - 1])
def test_a_file_that_became_shorter_is_said_to_be(counters: Path, size: int) -> None:
    file = CounterFile(str(counters))
    os.truncate(counters, size)
    seen = file.look()
    assert f"has {size} bytes, it had {SIZE}" in seen.unreadable
    assert (seen.counters is None) == (size < WORDS.size)


def test_a_file_that_was_removed_or_replaced_is_known_and_still_read(counters: Path) -> None:
    file = CounterFile(str(counters))
    before = file.look()
    other = counters.with_name("other")
    other.write_bytes(bytes(SIZE))
    other.replace(counters)
    replaced = file.look()
    assert replaced.file not in (None, before.file)
    assert replaced.counters == before.counters, "what the lane writes is in the file that it has open"
    counters.unlink()
    removed = file.look()
    assert removed.file is None
    assert "was removed" in removed.unreadable
    assert removed.counters == before.counters


def test_what_is_no_counters_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("missing", "pipe", "link", "."):
        with pytest.raises(StoreError, match="open the counters"):
            CounterFile(str(tmp_path / name))


def test_a_successor_finds_what_the_last_look_knew_and_a_note(tmp_path: Path) -> None:
    box = BlackBox()
    assert box.last_look() is None
    assert box.noted() is None
    known = Known(Counters(2**62, 5, 1, 2, 3, 4, 6), FileId(2**63, 7), pending_since=12.5, epoch=3)
    box.looked(13.25, known)
    box.note({"trip": "é" * 1000})
    box.note({"done": 8})
    successor = BlackBox(os.dup(box.fd))
    assert successor.last_look() == (13.25, known)
    assert successor.noted() == {"done": 8}
    successor.looked(14.0, Known())
    assert box.last_look() == (14.0, Known())


def test_a_first_process_is_held_by_who_it_is_and_its_end_is_seen(sleeper: subprocess.Popen[bytes]) -> None:
    identity = id_of(sleeper)
    assert FirstProcess.hold(ProcessId(identity.pid, identity.start_time + 1, identity.boot_id)) is None
    held = FirstProcess.hold(identity)
    assert held is not None
    assert held.killable
    assert not held.ended_within(0)
    assert held.kill()
    assert held.ended_within(SOON_S)
    sleeper.wait()
    assert not held.killable
    assert not held.kill()
    assert FirstProcess.hold(identity) is None
    held.close()


class OneContainer:
    """The part of an engine that is asked for a container's processes."""

    def __init__(self, pids: frozenset[int] | None) -> None:
        self._pids = pids

    def pids(self, ref: str) -> frozenset[int] | None:
        if self._pids == frozenset({-1}):
            raise Unreachable("it is away")
        return self._pids


def a_container(pid: int | None, status: Status = Status.RUNNING) -> Container:
    return Container("id", "name", "sha256:1", "image", status, pid=pid)


def test_an_engines_pid_is_believed_only_if_it_is_among_the_containers_own_here() -> None:
    me = os.getpid()
    assert first_process(OneContainer(frozenset({me})), a_container(me)) == identify(me)  # type: ignore[arg-type]
    for pids in (None, frozenset(), frozenset({me + 1}), frozenset({-1})):
        assert first_process(OneContainer(pids), a_container(me)) is None  # type: ignore[arg-type]
    assert first_process(OneContainer(frozenset({me})), a_container(None)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "state", "may_run"),
    [
        (None, Sidecar.RUNNING, True),
        (Seen(1.0, error="no answer"), Sidecar.RUNNING, True),
        (Seen(1.0, a_container(1)), Sidecar.RUNNING, True),
        (Seen(1.0, a_container(1, Status.PAUSED), paused=True), Sidecar.PAUSED, True),
        (Seen(1.0, a_container(None, Status.EXITED)), Sidecar.GONE, True),
        (Seen(1.0, None), Sidecar.GONE, True),
    ],
)
def test_a_container_whose_process_is_held(
    sleeper: subprocess.Popen[bytes], seen: Seen | None, state: Sidecar, may_run: bool
) -> None:
    watched = Watched(WatchedService("sidecar", "id", id_of(sleeper)))
    watched.look(seen, follow=False)
    assert (watched.as_sidecar, watched.may_run) == (state, may_run)
    watched.ended()
    assert (watched.as_sidecar, watched.may_run) == (Sidecar.GONE, False)


@pytest.mark.parametrize(
    ("seen", "state", "may_run", "kill_by"),
    [
        (None, Sidecar.UNKNOWN, True, "the engine has not answered yet"),
        (Seen(1.0, error="no answer"), Sidecar.UNKNOWN, True, "no answer"),
        (Seen(1.0, a_container(None)), Sidecar.RUNNING, True, "engine"),
        (Seen(0.5, a_container(None)), Sidecar.RUNNING, True, "the engine has not answered yet"),
        (Seen(1.0, a_container(None, Status.CREATED)), Sidecar.GONE, False, "not started"),
        (Seen(1.0, None), Sidecar.GONE, False, "there is no such container"),
    ],
)
def test_a_container_whose_process_cannot_be_seen_is_what_the_engine_says(
    seen: Seen | None, state: Sidecar, may_run: bool, kill_by: str
) -> None:
    watched = Watched(WatchedService("sidecar", "id"))
    watched.look(seen, follow=False)
    assert (watched.as_sidecar, watched.may_run, watched.kill_by(since=1.0)) == (state, may_run, kill_by)


def test_a_server_that_was_started_again_is_followed_and_a_sidecar_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    new = id_of(sleeper)
    old = ProcessId(new.pid, new.start_time - 1, new.boot_id)
    seen = Seen(1.0, a_container(new.pid), first=new)
    server, sidecar = (Watched(WatchedService(name, "id", old)) for name in ("server", "sidecar"))
    assert (server.gone, sidecar.gone) == (True, True)
    server.look(seen, follow=True)
    sidecar.look(seen, follow=False)
    assert (server.may_run, server.first is not None) == (True, True)
    assert sidecar.as_sidecar is Sidecar.GONE
    server.look(Seen(0.5, a_container(old.pid), first=old), follow=True)
    assert server.may_run, "an answer from before the restart changes nothing"


def test_the_files_of_a_watchdog_read_back_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    files = WatchFiles(tmp_path)
    me = identify(os.getpid())
    assert me is not None
    status = Said(Mode.BOOT, me, None, 1.5, counters=Counters(1, 2, 3), kills={"server": "pidfd"})
    order = Order(3, Wish.STANDBY, (WatchedService("server", "abc", me), WatchedService("sidecar", "def")))
    assert (files.status(), files.order(), files.spec(), files.tripped()) == (None,) * 4
    files.write_status(status)
    files.write_order(order)
    assert (files.status(), files.order()) == (status, order)
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o077] == []
    files.control.write_text('{"seq": 4, "wish": "sleep", "services": []}')
    with pytest.raises(StoreError, match="cannot be understood"):
        files.order()
    files.clear()
    assert (files.status(), files.order()) == (None, None)


def test_every_wish_but_an_end_is_a_mode() -> None:
    assert [wish.mode for wish in Wish] == [Mode.BOOT, Mode.SERVING, Mode.STANDBY, None, None]
    assert watch_key("0123456789abcdef") == "0123456789ab"


@pytest.mark.parametrize(("says", "expected"), [("stopping", True), ("running", False), ("degraded", False)])
def test_a_machine_is_going_down_when_systemd_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, expected: bool
) -> None:
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\n[ $1 = is-system-running ] && echo {says}\nexit 1\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("lanectl.probes.machine.SYSTEMD_RUNS", tmp_path)
    assert shutting_down() is expected
    monkeypatch.setattr("lanectl.probes.machine.SYSTEMD_RUNS", tmp_path / "none")
    assert shutting_down() is False
