"""Freeze the sidecar at random moments under load: every answer is the unfrozen lane's, or it was cut."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.store import process
from lanectl.store.audit import verify
from tests.support.asking import Clients, ask, wrong
from tests.support.docker_engine import DockerEngine
from tests.support.freeze_ways import DOCKER, LOCAL, freeze_often, stopped
from tests.support.frozen import PROMPTS, FrozenLane
from tests.support.poll import until
from tests.support.station import SOON_S, RealSite

# How often each way is tried: 7 ways x 3 on the local engine and 4 pauses + 8 other ways x 2 on Docker are 41 freezes
# in `make test`; test-full takes 16 x 40 = 640. Each costs some 1.2 s: a boot, a load, a trip.
FULL = 40 if os.environ.get("LANECTL_TEST_FULL") else 0
ON_LOCAL, PAUSES, ON_DOCKER = FULL or 3, FULL or 4, FULL or 2


@pytest.fixture
def lane(on_local: RealSite) -> Iterator[FrozenLane]:
    made = FrozenLane(on_local)
    yield made
    made.close()


@pytest.fixture
def docker_lane(on_docker: RealSite, docker_engine: DockerEngine) -> Iterator[FrozenLane]:
    made = FrozenLane(on_docker, docker_engine.url)
    yield made
    made.close()


def test_a_frozen_sidecar_never_makes_a_wrong_answer(lane: FrozenLane) -> None:
    no_wrong_answer(lane, dict.fromkeys(LOCAL, ON_LOCAL))


def test_a_sidecar_frozen_or_paused_on_docker_never_makes_a_wrong_answer(docker_lane: FrozenLane) -> None:
    no_wrong_answer(docker_lane, dict.fromkeys(DOCKER, ON_DOCKER) | {"docker pause": PAUSES})


def no_wrong_answer(lane: FrozenLane, times: dict[str, int]) -> None:
    """Freeze the lane so many times in each way, in a random order."""
    seed = int(os.environ.get("LANECTL_TEST_SEED", random.randrange(2**32)))
    dice = random.Random(seed)
    order = [way for way, count in times.items() for _ in range(count)]
    dice.shuffle(order)
    tallies = freeze_often(lane, DOCKER, order, dice)
    assert {way: tally.freezes for way, tally in tallies.items()} == times
    for way, tally in tallies.items():
        about = f"{way}, LANECTL_TEST_SEED={seed}: {tally}"
        assert not tally.wrong, about
        assert tally.under_way >= tally.freezes, about
        assert tally.cut >= tally.trips, f"clients saw it die: {about}"
        if DOCKER[way].thaw is None:
            assert tally.trips == tally.freezes, about
    assert sum(tally.whole for tally in tallies.values()) > 3 * len(order), "it was frozen in the middle of its work"
    assert not verify(lane.site.station().state.audit)[1]


def test_without_a_watchdog_and_with_a_small_spin_limit_the_same_clients_are_told_wrong_tokens(
    on_local: RealSite,
) -> None:
    """What all this is about; and the proof that these clients would see it."""
    lane = FrozenLane(on_local, guarded=False)
    try:
        with Clients(lane.site.public, PROMPTS) as clients:
            until(lambda: clients.asked, SOON_S, "answers")
            stopped(lane)
            until(
                lambda: [one for one in tuple(clients.asked) if one.told.whole and wrong(one, lane.expected)],
                SOON_S,
                "a whole answer with wrong tokens",
            )
            lane.signal_sidecar(signal.SIGCONT)
    finally:
        lane.close()


def test_nothing_starts_a_tripped_lane_but_a_person(lane: FrozenLane) -> None:
    lane.frozen(stopped, after_s=0.1)
    assert lane.site.recover(lane.station()).nothing
    assert not lane.runs()
    done = lane.site.lanectl("start")
    assert done.code == 8
    assert "lanectl restart" in done.err
    assert lane.site.lanectl("recover", "--if-needed").code == 0
    assert not lane.runs()
    done = lane.site.lanectl("status")
    assert done.code == 8
    assert "TRIPPED" in done.out
    lane.again()
    assert ask(lane.site.public, PROMPTS[0]).text == lane.expected[PROMPTS[0]]
    done = lane.site.lanectl("status")
    assert done.code == 0, done
    assert "watchdog    armed (serving)" in done.out


def test_a_reboot_starts_no_lane_that_tripped(
    lane: FrozenLane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.frozen(stopped, after_s=0.1)
    other = tmp_path / "boot_id"
    other.write_text("00000000-0000-4000-8000-00000000b007\n")
    monkeypatch.setattr(process, "BOOT_ID", other)
    station = replace(lane.station(), boot_id=process.boot_id())
    assert lane.site.recover(station).nothing
    assert not lane.runs()
    assert lane.tripped() is not None
