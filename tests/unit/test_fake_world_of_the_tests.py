"""The in-memory machine beyond the engine contract: fake time, ordered faults, ports, GPU memory, a machine restart."""

from __future__ import annotations

import threading

import pytest

from lanectl.core.container import CreateArgs, Status
from lanectl.errors import EngineUnknown, NotThere
from tests.support.fake_engine import KILL_LIMIT_S, FakeEngine, Fault
from tests.support.fake_world import FakeClock, Line, Program, World
from tests.support.poll import until

GPU = "nvidia.com/gpu=GPU-1"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def world(clock: FakeClock) -> World:
    world = World(clock)
    world.cdi_devices = (GPU,)
    return world


@pytest.fixture
def engine(world: World) -> FakeEngine:
    return FakeEngine(world)


def _run(engine: FakeEngine, name: str, program: Program, **host: object) -> str:
    image = engine.world.add_image(name, program)
    body = {"Image": image.id, "Cmd": ["serve", "--port", "30006"], "HostConfig": host}
    container_id = engine.create(CreateArgs(name, body))
    engine.start(container_id)
    return container_id


def test_time_passes_only_in_sleeps_and_brings_what_is_due(engine: FakeEngine, clock: FakeClock) -> None:
    container_id = _run(engine, "a", Program(exits_after_s=30.0, exit_code=1))
    clock.sleep(29.9)
    assert engine.inspect(container_id).status is Status.RUNNING  # type: ignore[union-attr]
    clock.sleep(0.2)
    container = engine.inspect(container_id)
    assert container is not None
    assert (container.status, container.exit_code) == (Status.EXITED, 1)
    assert container.finished_at.startswith("2026-01-01T00:00:30.1")
    assert clock.wall() == "2026-01-01T00:00:30.100Z"


def test_a_stop_takes_the_programs_time_or_the_grace(engine: FakeEngine, clock: FakeClock) -> None:
    slow = _run(engine, "slow", Program(term_takes_s=5.0))
    deaf = _run(engine, "deaf", Program(term_code=None))
    stopped = engine.stop(slow, 30.0)
    assert (stopped.how, stopped.seconds, stopped.exit_code) == ("term", 5.0, 0)
    stopped = engine.stop(deaf, 30.0)
    assert (stopped.how, stopped.seconds, stopped.exit_code) == ("kill", 30.0, 137)
    assert clock.monotonic() == 35.0


def test_T21_a_ghost_survives_the_kill_and_is_said_to(engine: FakeEngine, clock: FakeClock) -> None:
    ghost = _run(engine, "ghost", Program(term_code=None, dies=False))
    with pytest.raises(EngineUnknown):
        engine.stop(ghost, 1.0)
    assert clock.monotonic() == 1.0 + KILL_LIMIT_S
    assert engine.inspect(ghost).running  # type: ignore[union-attr]


class Died(BaseException):
    """lanectl's own death, as a test plays it."""


@pytest.mark.parametrize("after", [False, True])
def test_a_fault_strikes_the_call_it_names_before_or_after_the_effect(engine: FakeEngine, after: bool) -> None:
    first = _run(engine, "a", Program())
    second = _run(engine, "b", Program())
    engine.faults.append(Fault("stop", Died(), after=after, ref=second))
    engine.stop(first, 1.0)
    with pytest.raises(Died):
        engine.stop(second, 1.0)
    assert engine.inspect(second).running is not after  # type: ignore[union-attr]
    assert engine.stop(second, 1.0).how == ("already" if after else "term")
    assert [call for call in engine.calls if call[0] == "stop"] == [("stop", first), ("stop", second), ("stop", second)]


def test_a_fault_waits_its_turn_and_strikes_as_often_as_ordered(engine: FakeEngine) -> None:
    container_id = _run(engine, "a", Program())
    engine.faults.append(Fault("inspect", EngineUnknown("lost"), skip=1, times=2))
    assert engine.inspect(container_id) is not None
    for _ in range(2):
        with pytest.raises(EngineUnknown):
            engine.inspect(container_id)
    assert engine.inspect(container_id) is not None


def test_a_server_listens_where_its_command_says_and_a_second_one_fails(engine: FakeEngine, clock: FakeClock) -> None:
    server = Program(model="tiny", listens_after_s=2.0)
    first = _run(engine, "a", server)
    assert engine.world.listeners(30006) == ()
    clock.sleep(2.0)
    (listener,) = engine.world.listeners(30006)
    assert (listener.name, listener.pids, listener.program.model) == ("a", engine.pids(first), "tiny")

    second = _run(engine, "b", server)
    clock.sleep(2.0)
    assert engine.inspect(second).exit_code == 1  # type: ignore[union-attr]
    assert "address already in use" in next(engine.logs(second))
    engine.stop(first, 1.0)
    assert engine.world.listeners(30006) == ()


def test_gpu_memory_comes_back_some_time_after_the_exit(engine: FakeEngine, world: World, clock: FakeClock) -> None:
    request = [{"Driver": "cdi", "DeviceIDs": [GPU]}]
    container_id = _run(engine, "a", Program(gpu_mib=60_000, gpu_free_after_s=3.0), DeviceRequests=request)
    assert world.gpu_mib(GPU) == 60_000
    engine.kill(container_id)
    assert world.gpu_mib(GPU) == 60_000
    clock.sleep(3.0)
    assert world.gpu_mib(GPU) == 0


def test_T40_after_a_machine_restart_only_the_policies_act(engine: FakeEngine, world: World) -> None:
    always = _run(engine, "always", Program(), RestartPolicy={"Name": "always"})
    stopped = _run(engine, "stopped", Program(), RestartPolicy={"Name": "unless-stopped"})
    kept = _run(engine, "kept", Program(), RestartPolicy={"Name": "unless-stopped"})
    parked = _run(engine, "parked", Program(), RestartPolicy={"Name": "no"})
    engine.stop(always, 1.0)
    engine.stop(stopped, 1.0)
    world.restart_machine()
    running = {container.id for container in engine.containers() if container.running}
    assert running == {always, kept}
    assert engine.inspect(parked).exit_code == 137  # type: ignore[union-attr]


def test_a_reader_in_another_thread_has_every_line_that_fake_time_made_due(
    engine: FakeEngine, world: World, clock: FakeClock
) -> None:
    lines = tuple(Line(after_s=float(second), data=f"line {second}\n".encode()) for second in range(1, 101))
    container_id = _run(engine, "a", Program(lines=lines))
    seen: list[str] = []
    log = engine.logs(container_id)
    reader = threading.Thread(target=lambda: seen.extend(log), daemon=True)
    reader.start()
    until(lambda: all(known.thread for known in world.readers), 5.0, "the reader waits for its first line")
    for second in range(1, 101):
        clock.sleep(1.0)
        assert len(seen) == second
    engine.kill(container_id)
    reader.join(5.0)
    assert not reader.is_alive()
    assert seen[-1] == "line 100"


def test_the_dead_know_no_container(world: World) -> None:
    """A new engine on the same world sees what the old one left, as a lanectl that comes back does."""
    container_id = _run(FakeEngine(world), "a", Program())
    heir = FakeEngine(world)
    assert heir.inspect("a").id == container_id  # type: ignore[union-attr]
    heir.remove("a")
    with pytest.raises(NotThere):
        FakeEngine(world).start("a")
