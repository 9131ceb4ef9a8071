"""What a Docker daemon does rarely and must not be fooled by: no answer, half answers, kills without an exit."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanectl.core.container import CreateArgs
from lanectl.core.lane import Restart
from lanectl.engine import docker_api, docker_end
from lanectl.engine.docker import DockerEngine
from lanectl.errors import EngineError, EngineUnknown, NameTaken, NotThere, Refused, Unreachable
from tests.support.stand_in_daemon import CONTAINER_ID, DAEMON_ID, Cut, StandIn, stand_in_daemon

STOP = "POST /containers/{id}/stop"
KILL = "POST /containers/{id}/kill"
INSPECT = "GET /containers/{id}/json"
REMOVE = "DELETE /containers/{id}"
GRACE_S = 10.0
SHORT_S = 0.3
NOBODY = 65534


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[StandIn]:
    with stand_in_daemon(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def engine(daemon: StandIn) -> DockerEngine:
    return DockerEngine(daemon.url, DAEMON_ID)


def refuse(status: int, words: str) -> Any:
    return lambda: (status, {"message": words})


def cut() -> tuple[int, Any]:
    raise Cut


def ends(daemon: StandIn, code: int, status: int = 204, body: Any = None) -> Any:
    """Return a handler after which the container is not running."""

    def handler() -> tuple[int, Any]:
        daemon.container.status, daemon.container.exit_code = "exited", code
        return status, body

    return handler


class TestReaching:
    @pytest.mark.parametrize("endpoint", ["", "ssh://station", "/var/run/docker.sock", "npipe://x"])
    def test_T39_only_an_explicit_endpoint_will_do(self, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", "unix:///somewhere/else.sock")
        with pytest.raises(Unreachable, match="endpoint"):
            DockerEngine(endpoint, None).info()

    def test_no_socket(self, tmp_path: Path) -> None:
        endpoint = f"unix://{tmp_path}/absent.sock"
        with pytest.raises(Unreachable, match=r"absent\.sock") as caught:
            DockerEngine(endpoint, None).inspect("lane")
        assert caught.value.exit_code == 7
        assert endpoint in (caught.value.hint or "")

    def test_a_socket_that_nobody_serves(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as unserved:
            unserved.bind(str(tmp_path / "dead.sock"))
            with pytest.raises(Unreachable, match="refused"):
                DockerEngine(f"unix://{tmp_path}/dead.sock", None).info()

    def test_a_port_that_nobody_serves(self) -> None:
        with socket.socket() as unserved:
            unserved.bind(("127.0.0.1", 0))
            with pytest.raises(Unreachable, match="refused"):
                DockerEngine(f"tcp://127.0.0.1:{unserved.getsockname()[1]}", None).info()

    def test_a_socket_this_user_may_not_open(self, daemon: StandIn) -> None:
        Path(daemon.url.removeprefix("unix://")).chmod(0)
        before = os.geteuid()
        if before == 0:
            os.seteuid(NOBODY)  # root may open every socket
        try:
            with pytest.raises(Unreachable) as caught:
                DockerEngine(daemon.url, None).info()
        finally:
            os.seteuid(before)
        assert "group docker" in (caught.value.hint or "")

    def test_the_environment_neither_chooses_an_engine_nor_a_proxy(
        self, daemon: StandIn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for variable in ("DOCKER_HOST", "DOCKER_CONTEXT", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, "http://192.0.2.1:1")
        assert DockerEngine(daemon.url, None).info().id == DAEMON_ID

    def test_a_daemon_is_spoken_to_in_a_version_both_know(self, daemon: StandIn) -> None:
        daemon.api_version = "1.41"
        assert DockerEngine(daemon.url, None).info().cdi_devices is None
        daemon.api_version = "1.99"
        assert DockerEngine(daemon.url, None).info().cdi_devices == ()

    @pytest.mark.parametrize("said", [None, "<html>hello</html>", {}, {"ApiVersion": "new"}, {"ApiVersion": 2}, [1]])
    def test_a_server_that_is_no_engine(self, daemon: StandIn, said: Any) -> None:
        daemon.on["GET /version"] = lambda: (200, said)
        with pytest.raises(EngineError, match="does not answer as a Docker engine does") as caught:
            DockerEngine(daemon.url, None).info()
        assert caught.value.exit_code == 7


class TestPinned:
    def test_T39_another_daemon_is_refused_before_anything_else_is_asked_of_it(self, daemon: StandIn) -> None:
        engine = DockerEngine(daemon.url, "the-station")
        daemon.on[STOP] = ends(daemon, 0)
        for call in (engine.info, lambda: engine.stop(CONTAINER_ID, 1), lambda: engine.remove(CONTAINER_ID)):
            with pytest.raises(Refused, match="the-station") as caught:
                call()
            assert caught.value.exit_code == 3
        assert set(daemon.requests) == {"GET /version", "GET /info"}

    def test_nothing_pinned_refuses_nobody(self, daemon: StandIn) -> None:
        assert DockerEngine(daemon.url, None).info().id == DAEMON_ID


class TestAnswers:
    def test_a_call_without_an_answer_is_unknown_not_failed(
        self, daemon: StandIn, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine.info()
        monkeypatch.setattr(docker_api, "LOOK_S", SHORT_S)
        daemon.on[INSPECT] = daemon.hang
        with pytest.raises(EngineUnknown, match="no answer"):
            engine.inspect(CONTAINER_ID)

    @pytest.mark.parametrize("request_name", ["POST /containers/create", "POST /containers/{id}/start"])
    def test_a_change_whose_answer_is_cut_off_is_unknown_and_not_sent_again(
        self, daemon: StandIn, engine: DockerEngine, request_name: str
    ) -> None:
        daemon.on[request_name] = cut
        with pytest.raises(EngineUnknown):
            if request_name.endswith("create"):
                engine.create(CreateArgs("lane", {"Image": "x"}))
            else:
                engine.start(CONTAINER_ID)
        assert daemon.count(request_name) == 1

    def test_a_refusal_is_told_in_the_daemons_words(self, daemon: StandIn, engine: DockerEngine) -> None:
        daemon.on["POST /containers/create"] = refuse(400, "invalid mount config for type")
        with pytest.raises(EngineError, match="could not create container lane: invalid mount config") as caught:
            engine.create(CreateArgs("lane", {"Image": "x"}))
        assert not isinstance(caught.value, (NotThere, NameTaken, EngineUnknown))

    def test_what_is_told_by_status_is_not_guessed_from_words(self, daemon: StandIn, engine: DockerEngine) -> None:
        daemon.on["POST /containers/create"] = refuse(500, "no such image, name already in use, conflict")
        with pytest.raises(EngineError) as caught:
            engine.create(CreateArgs("lane", {"Image": "x"}))
        assert not isinstance(caught.value, (NotThere, NameTaken))

    def test_an_answer_that_is_no_json_is_told_as_it_is(self, daemon: StandIn, engine: DockerEngine) -> None:
        daemon.on["POST /containers/{id}/update"] = lambda: (502, "proxy says no")
        with pytest.raises(EngineError, match="proxy says no"):
            engine.set_restart(CONTAINER_ID, Restart())


class TestStop:
    def test_T20_no_answer_to_the_stop_but_the_container_ends(
        self, daemon: StandIn, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The daemon's answer is lost; what it says of the container is what counts, long before the grace is over."""

        def handler() -> tuple[int, Any]:
            daemon.container.status = "exited"
            return daemon.hang()

        daemon.on[STOP] = handler
        stopped = engine.stop(CONTAINER_ID, GRACE_S)
        assert (stopped.how, stopped.exit_code) == ("term", 0)
        assert stopped.seconds < GRACE_S
        assert (daemon.count(STOP), daemon.count(KILL)) == (1, 0)

    @pytest.mark.parametrize("answer", ["hang", "cut", "error"])
    def test_T20_an_unknown_stop_is_waited_for_by_our_own_clock_then_killed_never_sent_again(
        self, daemon: StandIn, engine: DockerEngine, answer: str
    ) -> None:
        daemon.on[STOP] = {"hang": daemon.hang, "cut": cut, "error": refuse(500, "did not receive an exit event")}[
            answer
        ]
        daemon.on[KILL] = ends(daemon, 137)
        stopped = engine.stop(CONTAINER_ID, SHORT_S)
        assert (stopped.how, stopped.exit_code) == ("kill", 137)
        assert stopped.seconds >= SHORT_S
        assert (daemon.count(STOP), daemon.count(KILL)) == (1, 1)

    def test_T20_looks_that_fail_meanwhile_are_repeated(self, daemon: StandIn, engine: DockerEngine) -> None:
        looks = 0

        def look() -> tuple[int, Any]:
            nonlocal looks
            looks += 1
            if looks < 3:
                raise Cut
            return 200, daemon.container.answer()

        daemon.on[STOP] = ends(daemon, 0)
        daemon.on[INSPECT] = look
        assert engine.stop(CONTAINER_ID, GRACE_S).how == "term"

    def test_the_daemons_own_kill_comes_later_than_ours(self, daemon: StandIn, engine: DockerEngine) -> None:
        assert docker_end.BACKSTOP_S > 0
        daemon.on[STOP] = daemon.hang
        daemon.on[KILL] = ends(daemon, 137)
        began = time.monotonic()
        engine.stop(CONTAINER_ID, SHORT_S)
        assert time.monotonic() - began < SHORT_S + docker_end.BACKSTOP_S

    def test_T21_said_to_be_stopped_and_still_running_is_killed(self, daemon: StandIn, engine: DockerEngine) -> None:
        daemon.on[STOP] = lambda: (204, None)
        daemon.on[KILL] = ends(daemon, 137)
        assert engine.stop(CONTAINER_ID, SHORT_S).how == "kill"

    @pytest.mark.parametrize("answer", ["hang", "ok", "error"])
    def test_T21_a_ghost_that_outlives_the_kill_is_unknown_and_loud(
        self, daemon: StandIn, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch, answer: str
    ) -> None:
        monkeypatch.setattr(docker_end, "KILL_LIMIT_S", SHORT_S)
        daemon.on[STOP] = daemon.hang
        ok = (204, None)
        daemon.on[KILL] = {"hang": daemon.hang, "ok": lambda: ok, "error": refuse(500, "no exit event")}[answer]
        with pytest.raises(EngineUnknown, match="still runs") as caught:
            engine.stop(CONTAINER_ID, SHORT_S)
        assert "start nothing beside it" in (caught.value.hint or "")
        assert daemon.count(KILL) == 1

    def test_a_kill_that_blocks_holds_nobody_up_once_the_container_is_gone(
        self, daemon: StandIn, engine: DockerEngine
    ) -> None:
        def handler() -> tuple[int, Any]:
            daemon.container.status, daemon.container.exit_code = "exited", 137
            return daemon.hang()

        daemon.on[KILL] = handler
        began = time.monotonic()
        engine.kill(CONTAINER_ID)
        assert time.monotonic() - began < GRACE_S

    def test_one_that_removes_itself_when_it_ends_has_stopped(self, daemon: StandIn, engine: DockerEngine) -> None:
        def handler() -> tuple[int, Any]:
            daemon.on[INSPECT] = refuse(404, "no such container")
            return 204, None

        daemon.on[STOP] = handler
        stopped = engine.stop(CONTAINER_ID, GRACE_S)
        assert (stopped.how, stopped.exit_code) == ("term", None)


class TestRemove:
    def test_T22_a_removal_already_in_progress_is_waited_for(self, daemon: StandIn, engine: DockerEngine) -> None:
        looks = 0

        def look() -> tuple[int, Any]:
            nonlocal looks
            looks += 1
            daemon.container.status = "removing"
            return (200, daemon.container.answer()) if looks < 4 else (404, {"message": "no such container"})

        daemon.on[REMOVE] = refuse(409, "removal of container lane is already in progress")
        daemon.on[INSPECT] = look
        engine.remove(CONTAINER_ID)
        assert looks == 4
        assert daemon.count(REMOVE) == 1

    def test_T22_one_that_never_ends_is_unknown(
        self, daemon: StandIn, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(docker_end, "REMOVE_LIMIT_S", SHORT_S)
        daemon.on[REMOVE] = refuse(409, "removal of container lane is already in progress")
        with pytest.raises(EngineUnknown, match="still there"):
            engine.remove(CONTAINER_ID)

    def test_a_lost_answer_is_looked_after(self, daemon: StandIn, engine: DockerEngine) -> None:
        def handler() -> tuple[int, Any]:
            daemon.on[INSPECT] = refuse(404, "no such container")
            raise Cut

        daemon.on[REMOVE] = handler
        engine.remove(CONTAINER_ID)
        assert daemon.count(REMOVE) == 1

    def test_a_refusal_is_an_error(self, daemon: StandIn, engine: DockerEngine) -> None:
        daemon.on[REMOVE] = refuse(500, "unable to remove filesystem: device or resource busy")
        with pytest.raises(EngineError, match="device or resource busy"):
            engine.remove(CONTAINER_ID)


class TestCdiProbe:
    CREATE = "POST /containers/create"
    START = "POST /containers/{id}/start"

    def test_T28_what_fails_before_the_program_is_looked_for_is_the_problem(
        self, daemon: StandIn, engine: DockerEngine
    ) -> None:
        daemon.on["GET /containers/json"] = lambda: (200, [])
        daemon.on[self.CREATE] = lambda: (201, {"Id": CONTAINER_ID})
        daemon.on[self.START] = refuse(500, 'could not select device driver "cdi" with capabilities: [[]]')
        daemon.on[REMOVE] = lambda: (204, None)
        daemon.container.status, daemon.container.exit_code = "created", 128
        said = engine.cdi_problem("sha256:1", ["nvidia.com/gpu=GPU-1"])
        assert said == 'could not select device driver "cdi" with capabilities: [[]]'
        assert daemon.count(REMOVE) == 1

    def test_a_missing_program_alone_proves_the_devices(self, daemon: StandIn, engine: DockerEngine) -> None:
        daemon.on["GET /containers/json"] = lambda: (200, [])
        daemon.on[self.CREATE] = lambda: (201, {"Id": CONTAINER_ID})
        daemon.on[self.START] = refuse(400, "stat /lanectl-cdi-probe: no such file or directory")
        daemon.on[REMOVE] = lambda: (204, None)
        daemon.container.status, daemon.container.exit_code = "created", 127
        assert engine.cdi_problem("sha256:1", ["nvidia.com/gpu=GPU-1"]) is None

    def test_probes_of_a_killed_lanectl_are_removed_those_of_a_living_one_stay(
        self, daemon: StandIn, engine: DockerEngine
    ) -> None:
        dead = os.fork()
        if dead == 0:
            os._exit(0)
        os.waitpid(dead, 0)
        left = [
            {"Id": "dead", "Names": [f"/lanectl-cdi-probe-{dead}-1"]},
            {"Id": "alive", "Names": [f"/lanectl-cdi-probe-{os.getpid()}-1"]},
        ]
        daemon.on["GET /containers/json"] = lambda: (200, left)
        daemon.on["DELETE /containers/dead"] = lambda: (204, None)
        daemon.on[self.CREATE] = refuse(400, "enough")
        with pytest.raises(EngineError, match="enough"):
            engine.cdi_problem("sha256:1", [])
        assert [name for name in daemon.requests if name.startswith("DELETE")] == ["DELETE /containers/dead"]


def test_a_log_that_breaks_off_is_unknown_not_the_end(daemon: StandIn, engine: DockerEngine) -> None:
    """The daemon dies: the log has no end yet, and who waits for a marker must look."""
    daemon.on["GET /containers/{id}/logs"] = cut
    with pytest.raises(EngineUnknown):
        list(engine.logs(CONTAINER_ID, since_start=False))
    assert daemon.count("GET /containers/{id}/logs") == 1
