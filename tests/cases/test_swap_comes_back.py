"""What can befall production while it is parked, in memory, and how it comes back; when it cannot, DARK and recover."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanectl.core.container import Status
from lanectl.core.journal import Kind
from lanectl.core.lane import Restart
from lanectl.errors import Busy, Dark, EngineError, EngineUnknown, ExitCode, Unfinished
from lanectl.ports import GpuReading
from lanectl.store.lock import Lock
from tests.support.aftermath import is_back, serves_alone, untouched
from tests.support.engine_cdi import NAMES
from tests.support.fake_engine import FakeEngine, Fault
from tests.support.fake_station import SPEAKS, WELL, FakeSite, WorldGpus
from tests.support.fake_world import Line, Listener, Program
from tests.support.station import Ended

STRANGER = Listener(30006, frozenset({4711}), "nginx", Program())


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce(restart="always", sidecar=SPEAKS)
    site.lane("cand")
    return site


def _meanwhile(site: FakeSite, act: Callable[[], object], **parts: Any) -> Ended:
    """Swap, and have something happen while production is parked and the candidate serves."""

    def measure(**asked: Any) -> Any:
        act()
        return site.measure(**asked)

    return site.swap("cand", station=site.station(**{"measure": measure, **parts}), measure=True)


def both(site: FakeSite) -> tuple[Any, Any]:
    return site.seen("prod-sidecar"), site.seen("prod")


def test_a_parked_container_removed_behind_lanectls_back_is_made_again(site: FakeSite) -> None:
    sidecar, server = both(site)
    ended = _meanwhile(site, lambda: site.engine.remove(server.id))
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "measured")
    serves_alone(site, "prod-sidecar", "prod")
    again = site.seen("prod")
    assert again.id != server.id
    assert (again.image_id, again.restart) == (server.image_id, Restart("always"))
    assert site.seen("prod-sidecar").id == sidecar.id
    assert any("making it again" in note for note in ended.told.notes)


def test_what_was_made_again_is_what_the_next_swap_parks(site: FakeSite) -> None:
    first = both(site)
    _meanwhile(site, lambda: [site.engine.remove(one.id) for one in first])
    production = both(site)
    assert site.swap("cand").outcome == "proven"
    is_back(site, *production)


def test_a_parked_container_that_was_given_another_name_is_found_by_id(site: FakeSite) -> None:
    production = both(site)
    ended = _meanwhile(site, lambda: site.engine.rename(production[1].id, "somebody-renamed-it"))
    assert ended.outcome == "measured"
    is_back(site, *production)


def test_a_parked_container_that_somebody_started_is_not_two_lanes_for_long(site: FakeSite) -> None:
    production = both(site)
    ended = _meanwhile(site, lambda: site.engine.start(production[0].id))
    assert ended.outcome == "measured"
    is_back(site, *production)


def test_T40_a_daemon_that_restarts_mid_swap_does_not_wake_parked_production(site: FakeSite) -> None:
    production = both(site)
    woken: list[bool] = []

    def restart() -> None:
        site.world.restart_machine()
        woken.extend(one.running for one in both_parked(site, production))

    _meanwhile(site, restart)
    assert woken == [False, False]
    is_back(site, *production)


def both_parked(site: FakeSite, production: tuple[Any, Any]) -> list[Any]:
    return [site.seen(one.id) for one in production]


def test_a_paused_parked_container_comes_back(site: FakeSite) -> None:
    production = both(site)

    def freeze() -> None:
        site.engine.start(production[0].id)
        site.world.freeze(site.container(production[0].id))

    assert _meanwhile(site, freeze).outcome == "measured"
    is_back(site, *production)


def test_a_name_that_somebody_took_meanwhile_is_dark_and_recover_works_once_it_is_free(site: FakeSite) -> None:
    production = both(site)

    def take() -> None:
        image = site.world.images[production[1].image_id]
        site.world.add("prod", {"Image": image.id}, image, Restart())

    ended = _meanwhile(site, take)
    assert ended.exit_code is ExitCode.DARK
    assert "prod" in ended.words
    site.engine.remove("prod")
    assert site.recover().swaps
    is_back(site, *production)


def test_T44_production_that_comes_back_broken_is_dark_never_success(site: FakeSite) -> None:
    production = both(site)
    broken = Program(lines=(Line(0.01, b"RuntimeError: the weights are gone\n"),), exits_after_s=0.02, exit_code=1)
    ended = _meanwhile(site, lambda: site.becomes("prod", broken))
    assert (ended.exit_code, ended.report) == (ExitCode.DARK, None)
    assert isinstance(ended.error, Dark)
    assert "RuntimeError: the weights are gone" in ended.words
    assert "lanectl recover" in ended.words
    stuck = site.record(Kind.STUCK)
    assert stuck is not None
    assert site.record(Kind.CLOSED) is None

    again = site.swap("cand")
    assert again.exit_code is ExitCode.DARK
    assert "RuntimeError: the weights are gone" in again.words

    site.becomes("prod", WELL)
    (recovered,) = site.recover().swaps
    assert recovered[1] == "recovered:prove"
    is_back(site, *production)


@pytest.mark.parametrize("broken", [replace(WELL, hangs=True), replace(WELL, model="other"), Program(port=30006)])
def test_T44_the_ladder_decides_on_production_too(site: FakeSite, broken: Program) -> None:
    """It runs, it even answers, and it is not what is owed."""
    production = both(site)
    ended = _meanwhile(site, lambda: site.becomes("prod", broken))
    assert ended.exit_code is ExitCode.DARK
    site.becomes("prod", WELL)
    site.recover()
    is_back(site, *production)


def test_T44_a_broken_start_is_tried_again_from_a_stop(site: FakeSite) -> None:
    """It hangs the first time and is well the second: three attempts are the default."""
    production = both(site)
    site.becomes("prod", replace(WELL, hangs=True))
    engine = _HealsAfter(site, starts=2)
    ended = site.swap("cand", station=site.station(engine=engine), measure=True)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "measured")
    is_back(site, *production)


class _HealsAfter(FakeEngine):
    """The engine of a production that is well from its so-many-th start on."""

    def __init__(self, site: FakeSite, starts: int) -> None:
        super().__init__(site.world)
        self._site = site
        self._left = starts

    def start(self, ref: str) -> None:
        if self._site.container(ref).born_name.startswith("prod.candidate."):
            self._left -= 1
            if self._left == 0:
                self._site.becomes("prod", WELL)
        super().start(ref)


def test_T24_a_port_that_stays_held_is_dark_and_names_the_holder(site: FakeSite) -> None:
    production = both(site)
    ended = _meanwhile(site, lambda: site.world.strangers.append(STRANGER))
    assert ended.exit_code is ExitCode.DARK
    assert "port 30006 is still held by nginx" in ended.words
    assert all(not site.seen(one.id).running for one in production), "nothing is started beside a stranger"
    site.world.strangers.clear()
    site.recover()
    is_back(site, *production)


def test_T24_a_port_held_after_the_stop_boots_no_candidate_and_production_returns_when_it_is_free(
    site: FakeSite,
) -> None:
    production = both(site)
    engine = _GrabsPort(site)
    ended = site.swap("cand", station=site.station(engine=engine))
    assert (ended.exit_code, ended.outcome) == (ExitCode.CANDIDATE, "failed:free")
    assert "nginx" in ended.words
    assert not [ref for call, ref in engine.calls if call == "start" and ref not in {one.id for one in production}]
    is_back(site, *production)


class _GrabsPort(FakeEngine):
    """An engine on whose machine a stranger takes the public port when production stops, for 90 s."""

    def __init__(self, site: FakeSite) -> None:
        super().__init__(site.world)
        self._site = site
        self._until: float | None = None
        site.clock.after_sleep.append(self._let_go)

    def stop(self, ref: str, grace_s: float) -> Any:
        stopped = super().stop(ref, grace_s)
        if self._until is None:
            self._until = self._site.clock.monotonic() + 90.0
            self._site.world.strangers.append(STRANGER)
        return stopped

    def _let_go(self) -> None:
        if self._until is not None and self._site.clock.monotonic() > self._until:
            self._site.world.strangers.clear()


def test_gpu_memory_that_cannot_be_read_does_not_keep_production_down(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    memory = {"gpu": "gb300", "stable": "1s", "within": "10s"}
    site.produce(devices=[NAMES["gb300"]], memory=memory)
    production = site.seen("prod")
    site.lane("cand", devices=[NAMES["gb300"]], memory=memory)
    gpus = _Blind(site)
    ended = _meanwhile(site, gpus.go_blind, gpus=gpus)
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "measured")
    is_back(site, production)


def test_gpu_memory_that_cannot_be_read_boots_no_candidate(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    memory = {"gpu": "gb300", "stable": "1s", "within": "10s"}
    site.produce(devices=[NAMES["gb300"]], memory=memory)
    production = site.seen("prod")
    site.lane("cand", devices=[NAMES["gb300"]], memory=memory)
    gpus = _Blind(site)
    gpus.go_blind()
    ended = site.swap("cand", station=site.station(gpus=gpus))
    assert (ended.exit_code, ended.outcome) == (ExitCode.CANDIDATE, "failed:free")
    is_back(site, production)


class _Blind(WorldGpus):
    """GPUs whose readings stop to answer."""

    def __init__(self, site: FakeSite) -> None:
        super().__init__(site.world)
        self._blind = False

    def go_blind(self) -> None:
        self._blind = True

    def read(self, uuid: str) -> GpuReading:
        return GpuReading(uuid, None, None, "GPU is lost") if self._blind else super().read(uuid)


def test_T21_a_ghost_that_not_even_a_kill_ends_boots_nothing_beside_it_and_is_loud(site: FakeSite) -> None:
    """It still answers, and may end at any moment: it was told to. It is not called production again."""
    production = both(site)
    ghost = site.container(production[1].id)
    ghost.program = replace(WELL, term_code=None, dies=False)
    ended = site.swap("cand")
    assert ended.exit_code is ExitCode.DARK
    assert "still runs after SIGKILL" in ended.words
    assert site.record(Kind.BEGIN, "start:server") is None
    ghost.program = WELL
    site.recover()
    is_back(site, *production)


@pytest.mark.parametrize("after", [False, True])
def test_production_whose_stop_is_in_doubt_is_stopped_to_the_end_before_it_is_relied_on(
    site: FakeSite, after: bool
) -> None:
    """The engine goes on stopping whoever asked: a server that still answers now may be gone a moment later."""
    production = both(site)
    engine = FakeEngine(site.world)
    engine.faults.append(Fault("stop", EngineUnknown("no answer in 55 s"), after=after))
    ended = site.swap("cand", station=site.station(engine=engine))
    assert (ended.exit_code, ended.outcome) == (ExitCode.CANDIDATE, "failed:stop:server")
    is_back(site, *production)
    assert site.seen(production[1].id).started_at != production[1].started_at
    assert site.seen(production[0].id).started_at == production[0].started_at, "nobody asked the sidecar to stop"


def test_T53_a_stop_that_is_ignored_becomes_a_kill_and_is_recorded(site: FakeSite) -> None:
    production = both(site)
    site.container(production[1].id).program = replace(WELL, term_code=None)
    ended = site.swap("cand")
    assert ended.outcome == "proven"
    stopped = site.record(Kind.DONE, "stop:server")
    assert stopped is not None
    assert (stopped.data["how"], stopped.data["exit_code"]) == ("kill", 137)
    assert stopped.data["seconds"] >= 30.0
    assert site.record(Kind.DONE, "stop:sidecar").data["how"] == "term"  # type: ignore[union-attr]
    is_back(site, *production)


def test_declared_shared_memory_is_removed_and_nothing_else(tmp_path: Path) -> None:
    mine, other = (Path(f"/dev/shm/lanectl-test-{tmp_path.name}-{name}") for name in ("lane", "other"))
    for path in (mine, other):
        path.write_bytes(b"x")
    try:
        site = FakeSite(tmp_path)
        site.produce()
        site.lane("cand", more={"shm": [str(mine)]})
        assert site.swap("cand").outcome == "proven"
        assert (mine.exists(), other.exists()) == (False, True)
    finally:
        other.unlink()
        mine.unlink(missing_ok=True)


def test_production_that_does_not_serve_now_is_no_baseline(site: FakeSite) -> None:
    server = both(site)[1]
    site.container(server.id).program = replace(WELL, hangs=True)
    ended = site.swap("cand")
    assert ended.exit_code is ExitCode.REFUSED
    assert "HUNG" in ended.words
    assert site.seen(server.id) == server


def test_the_lock_is_not_taken_from_a_living_owner(site: FakeSite) -> None:
    production = both(site)
    before = len(site.journals())
    with Lock(site.station().state.lock):
        ended = site.swap("cand")
    assert isinstance(ended.error, Busy)
    assert ended.exit_code is ExitCode.BUSY
    assert len(site.journals()) == before
    untouched(site, *production)


def test_an_open_swap_is_never_silently_taken_over(site: FakeSite) -> None:
    """The process died in the middle: every call of its engine fails from then on."""
    production = both(site)
    engine = FakeEngine(site.world)

    def measure(**_: Any) -> Any:
        engine.faults += [Fault(call, Killed(), times=10**6) for call in ("containers", "inspect")]
        raise Killed()

    with pytest.raises(Killed):
        site.swap("cand", station=site.station(engine=engine, measure=measure), measure=True)
    ended = site.swap("cand")
    assert isinstance(ended.error, Unfinished)
    assert ended.exit_code is ExitCode.UNFINISHED
    assert "lanectl recover" in ended.words
    site.recover()
    is_back(site, *production, killed=1)
    assert site.swap("cand").outcome == "proven"
    is_back(site, *production, killed=1)


class Killed(BaseException):
    """The process ends here."""


def test_a_candidate_that_somebody_removed_has_failed_and_needs_no_removal(site: FakeSite) -> None:
    production = both(site)

    def remove() -> None:
        (candidate,) = [one for name, one in site.containers().items() if ".candidate." in name]
        site.engine.remove(candidate.id)

    ended = _meanwhile(site, remove)
    assert (ended.exit_code, ended.outcome) == (ExitCode.CANDIDATE, "failed:measure")
    assert "removed behind our back" in ended.words
    is_back(site, *production)


def test_an_image_that_went_with_the_parked_container_is_dark_and_says_what_is_missing(site: FakeSite) -> None:
    sidecar, server = both(site)
    image = site.world.images[server.image_id]

    def prune() -> None:
        site.engine.remove(server.id)
        del site.world.images[server.image_id]

    ended = _meanwhile(site, prune)
    assert ended.exit_code is ExitCode.DARK
    assert server.image_id in ended.words
    site.world.images[image.id] = image
    site.recover()
    serves_alone(site, "prod-sidecar", "prod")
    assert site.seen("prod-sidecar").id == sidecar.id
    assert site.seen("prod").status is Status.RUNNING


def test_a_way_back_that_fails_every_time_keeps_the_journal_open(site: FakeSite) -> None:
    engine = FakeEngine(site.world)

    def start() -> None:
        engine.faults.append(Fault("start", EngineError("no space left on device"), times=10**6))

    ended = _meanwhile(site, start, engine=engine)
    assert ended.exit_code is ExitCode.DARK
    assert "no space left on device" in ended.words
    attempts = [one for one in site.records() if one.kind is Kind.FAILED and one.step == "prove"]
    assert [one.attempt for one in attempts] == [1, 2, 3]
