"""A Docker daemon that is another one, restarts or dies while lanectl works on it. Each test has its own daemon."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.core.container import Container, CreateArgs, Status
from lanectl.engine.docker import DockerEngine
from lanectl.errors import EngineUnknown, Refused, Unreachable
from tests.support.docker_engine import DockerEngine as RealEngine
from tests.support.engine_daemon import Daemon
from tests.support.engine_images import ensure_images
from tests.support.engine_packages import cache_folder
from tests.support.poll import until

SOON_S = 30.0
GRACE_S = 10.0
SHORT_S = 0.5
LIVES = "trap 'exit 0' TERM; echo up; while :; do sleep 1 & wait $!; done"
DEAF = "trap '' TERM; echo up; while :; do sleep 1; done"


@pytest.fixture
def daemon(docker_engine: RealEngine, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon beside the one of the other tests; only where the tests could start that one themselves."""
    if not docker_engine.private:
        pytest.skip(f"{docker_engine.source} is not ours to start another engine beside")
    daemon = Daemon(tmp_path / "daemon", "restarts").start()
    yield daemon
    daemon.stop()


@pytest.fixture
def engine(daemon: Daemon) -> DockerEngine:
    return DockerEngine(daemon.url, daemon.id())


@pytest.fixture
def image(daemon: Daemon) -> str:
    return ensure_images(daemon.url, cache_folder() / "bin" / "busybox")["busybox"]


def run(engine: DockerEngine, image: str, name: str, script: str, policy: str = "no") -> str:
    host = {"NetworkMode": "host", "RestartPolicy": {"Name": policy, "MaximumRetryCount": 0}}
    body = {"Image": image, "Entrypoint": ["/bin/sh", "-c"], "Cmd": [script], "HostConfig": host}
    container_id = engine.create(CreateArgs(name, body))
    engine.start(container_id)
    assert next(engine.logs(container_id)) == "up"
    return container_id


def see(engine: DockerEngine, ref: str) -> Container:
    container = engine.inspect(ref)
    assert container is not None
    return container


def test_T39_another_daemon_behind_the_endpoint_is_refused(
    docker_engine: RealEngine, daemon: Daemon, image: str
) -> None:
    mistaken = DockerEngine(daemon.url, docker_engine.daemon_id)
    with pytest.raises(Refused, match=docker_engine.daemon_id):
        mistaken.create(CreateArgs("x", {"Image": image}))
    assert DockerEngine(daemon.url, daemon.id()).containers() == ()


def test_T40_a_restart_wakes_what_has_a_policy_and_leaves_the_parked_alone(
    daemon: Daemon, engine: DockerEngine, image: str
) -> None:
    always = run(engine, image, "always", LIVES, "always")
    parked = run(engine, image, "parked", LIVES, "no")
    engine.stop(parked, GRACE_S)
    engine.stop(always, GRACE_S)
    daemon.restart()
    assert until(lambda: see(engine, always).running, SOON_S, "the one with a policy woke up by itself")
    assert see(engine, parked).status is Status.EXITED


def test_a_daemon_that_comes_back_is_found_again_by_the_same_engine(
    daemon: Daemon, engine: DockerEngine, image: str
) -> None:
    container_id = run(engine, image, "lane", LIVES)
    daemon.stop()
    for call in (lambda: engine.inspect(container_id), lambda: engine.start(container_id), engine.info):
        with pytest.raises(Unreachable) as caught:
            call()
        assert daemon.url in (caught.value.hint or "")
    daemon.start()
    engine.start(container_id)
    assert see(engine, container_id).running


def test_a_log_that_a_dying_daemon_cuts_off_is_unknown_not_ended(
    daemon: Daemon, engine: DockerEngine, image: str
) -> None:
    log = engine.logs(run(engine, image, "lane", LIVES))
    assert next(log) == "up"
    daemon.kill()
    with pytest.raises(EngineUnknown):
        next(log)


def test_T20_a_daemon_that_dies_during_a_stop_is_looked_for_and_never_said_to_have_stopped_it(
    daemon: Daemon, engine: DockerEngine, image: str
) -> None:
    container_id = run(engine, image, "deaf", DEAF)
    pid = see(engine, container_id).pid
    outcome: list[BaseException] = []

    def stop() -> None:
        try:
            engine.stop(container_id, SHORT_S)
        except (Unreachable, EngineUnknown) as error:
            outcome.append(error)

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    daemon.kill()
    thread.join(SOON_S)
    assert not thread.is_alive()
    assert len(outcome) == 1
    assert Path(f"/proc/{pid}").exists()  # and indeed it runs on without its daemon


def test_T20_a_daemon_that_comes_back_within_the_grace_ends_in_a_proven_stop(
    daemon: Daemon, engine: DockerEngine, image: str
) -> None:
    container_id = run(engine, image, "deaf", DEAF)
    ended: list[str] = []
    thread = threading.Thread(target=lambda: ended.append(engine.stop(container_id, GRACE_S).how), daemon=True)
    thread.start()
    time.sleep(SHORT_S)  # not for a state: so that the daemon most likely has the request when it dies
    daemon.kill()
    daemon.start()
    thread.join(2 * SOON_S)
    assert not thread.is_alive()
    assert ended in (["term"], ["kill"])
    assert not see(engine, container_id).active
