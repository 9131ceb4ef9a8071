"""A trip, whatever the engine does meanwhile: hung, away, on its way down; and one that its watcher did not finish."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanectl.actions import trip as trips
from lanectl.actions.trip import trip, unfinished
from lanectl.actions.watch_post import Post
from lanectl.actions.watched import Watched
from lanectl.core.codec import to_json
from lanectl.core.site import EngineConfig
from lanectl.core.watch import Counters, Mode, Rule, Trip
from lanectl.errors import ExitCode, Unreachable
from lanectl.ports import ContainerEngine
from lanectl.settings import Settings
from lanectl.store.audit import Audit, verify
from lanectl.store.process import identify
from lanectl.store.watch import Order, WatchedService, WatchFiles, WatchSpec, Wish
from lanectl.wiring import build_clock, build_watch_post
from tests.support.local_services import LocalServices, local_services
from tests.support.poll import until

KEY = "a-server"
GONE = Trip(Rule.SIDECAR_GONE, "the sidecar does not run", Counters(6, 5, 0))
LATE = Trip(Rule.TIMEOUT, "the server gave up waiting", Counters(6, 6, 1))
SOON_S = 20.0
WRITERS, LINES = 4, 25


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalServices]:
    with local_services(tmp_path) as services:
        for name in ("server", "sidecar"):
            services.python(name, "import time; time.sleep(600)")
        yield services


@pytest.fixture
def post(local: LocalServices) -> Post:
    """The post of a lane of two sleeping services."""
    files = WatchFiles(local.root / "watch" / KEY)
    files.folder.mkdir(parents=True)
    services = tuple(a_service(local, name) for name in ("server", "sidecar"))
    config = EngineConfig("local", cdi_spec_dirs=())
    files.write_spec(WatchSpec("v25", str(local.folder / "counters"), 2.0, True, services, config))
    files.write_order(Order(1, Wish.SERVING, services))
    found = build_watch_post(Settings(site=str(local.root.parent)), KEY, None)
    return replace(found, engine=local.engine)


def a_service(local: LocalServices, name: str) -> WatchedService:
    container = local.see(name)
    assert container.pid is not None
    return WatchedService(name, container.id, identify(container.pid))


def lane(post: Post, *, held: bool = True) -> list[Watched]:
    services = post.spec.services
    return [Watched(one if held else replace(one, first=None)) for one in services]


class Spoiled:
    """An engine whose kills go wrong: the first `away` of them fail, and with `hangs` none ever answers."""

    def __init__(self, engine: ContainerEngine, *, away: int = 0, hangs: bool = False) -> None:
        self._engine = engine
        self._away = away
        self._hangs = hangs
        self._turn = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def kill(self, ref: str) -> None:
        if self._hangs:
            threading.Event().wait()
        with self._turn:
            self._away -= 1
            if self._away >= 0:
                raise Unreachable("the engine is away")
        self._engine.kill(ref)


def all_dead(local: LocalServices) -> bool:
    return not any(local.see(name).running for name in ("server", "sidecar"))


def test_an_engine_that_hangs_is_not_waited_for(local: LocalServices, post: Post) -> None:
    record = trip(replace(post, engine=Spoiled(local.engine, hangs=True)), GONE, Mode.SERVING, 1, lane(post))
    assert record is not None
    assert [(kill.service, kill.by, kill.gone is not None) for kill in record.kills] == [
        ("server", "pidfd", True),
        ("sidecar", "pidfd", True),
    ]
    assert post.files.tripped() == record
    assert all_dead(local)


def test_an_engine_that_is_away_is_asked_again_where_there_is_no_pidfd(local: LocalServices, post: Post) -> None:
    spoiled = replace(post, engine=Spoiled(local.engine, away=3))
    record = trip(spoiled, GONE, Mode.SERVING, 1, lane(post, held=False))
    assert record is not None
    assert [(kill.by, kill.gone is not None, kill.error) for kill in record.kills] == [("engine", True, "")] * 2
    assert all_dead(local)


def test_a_lane_that_cannot_be_killed_is_recorded_at_once_and_with_what_the_engine_said(
    local: LocalServices, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trips, "GONE_WITHIN_S", 0.1)
    spoiled = replace(post, engine=Spoiled(local.engine, away=1_000_000))
    record = trip(spoiled, GONE, Mode.SERVING, 1, lane(post, held=False))
    assert record is not None
    assert [(kill.gone, kill.error) for kill in record.kills] == [(None, "the engine is away")] * 2
    assert not all_dead(local)


def test_a_sidecar_that_ends_with_the_machine_is_no_trip_and_its_server_dies_all_the_same(
    local: LocalServices, post: Post
) -> None:
    going_down = replace(post, shutting_down=lambda: True)
    assert trip(going_down, GONE, Mode.SERVING, 1, lane(post)) is None
    until(lambda: all_dead(local), SOON_S, "the engine says so, too")
    assert post.files.tripped() is None
    assert post.box.noted() == {"done": ExitCode.OK}


def test_a_dropped_part_is_a_trip_even_then(local: LocalServices, post: Post) -> None:
    record = trip(replace(post, shutting_down=lambda: True), LATE, Mode.SERVING, 1, lane(post))
    assert record is not None
    assert post.files.tripped() == record


def test_a_trip_that_its_watcher_did_not_live_to_finish_is_finished_by_the_next_one(
    local: LocalServices, post: Post
) -> None:
    """It had killed the server and recorded nothing yet."""
    post.box.note({"trip": to_json(LATE), "mode": "serving", "epoch": 7})
    assert unfinished(post) == (LATE, Mode.SERVING, 7)
    local.engine.kill("server")
    command = [sys.executable, "-m", "lanectl", "--site", str(local.root.parent), "watchdog", KEY]
    command += ["--box-fd", str(post.box.fd), "--watcher", f"{os.getpid()}:1"]  # a pid that is somebody else's by now
    done = subprocess.run(command, pass_fds=[post.box.fd], timeout=SOON_S, check=False)
    assert done.returncode == ExitCode.TRIPPED
    record = post.files.tripped()
    assert record is not None
    assert (record.rule, record.epoch, record.counters) == (Rule.TIMEOUT, 7, LATE.counters)
    assert all_dead(local)


def test_what_a_trip_starts_is_an_ordinary_process_again() -> None:
    """A fallback's swap, and the lane it boots, must not ignore signals, go before others, or outlive a shortage."""
    code = (
        "import os, signal, subprocess\n"
        "from lanectl.actions.watch_priority import give_up_priority, take_priority\n"
        "def seen():\n"
        "    script = 'trap > /dev/null; nice; cat /proc/self/oom_score_adj; grep SigIgn /proc/self/status'\n"
        "    print(subprocess.run(['sh', '-c', script], capture_output=True, text=True).stdout.split())\n"
        "seen(); take_priority(); seen(); give_up_priority(); seen()\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    before, preferred, after = said.splitlines()
    assert preferred != before
    assert after == before


def test_lines_that_several_processes_write_to_the_audit_at_once_are_all_there_and_chained(tmp_path: Path) -> None:
    """A watchdog that trips writes its line whoever holds the site's lock."""
    path = tmp_path / "audit.jsonl"
    code = (
        "import sys; from pathlib import Path\n"
        "from lanectl.clock import SystemClock; from lanectl.store.audit import Audit\n"
        "audit = Audit(Path(sys.argv[1]), SystemClock(), {})\n"
        "for number in range(int(sys.argv[2])): audit.write('outcome', 'watch', {'number': number})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(LINES)]) for _ in range(WRITERS)]
    assert [writer.wait(SOON_S) for writer in writers] == [0] * WRITERS
    Audit(path, build_clock(), {}).write("outcome", "watch", {})
    assert verify(path) == (WRITERS * LINES + 1, [])
