"""One suite for every `ContainerEngine`: each promise of the port's docstrings, repeated calls included."""

from __future__ import annotations

import threading
import time

import pytest

from lanectl.core.container import Container, CreateArgs, Status
from lanectl.core.lane import Restart
from lanectl.errors import DeviceUnknown, NameTaken, NotThere
from lanectl.ports import ContainerEngine
from tests.contract.harness import ERR, OUT, Harness, Script, Write, says
from tests.support.poll import until

# Long enough for a loaded two-core machine. Nothing waits this long unless it has failed.
SOON_S = 20.0
GRACE_S = 10.0
SHORT_GRACE_S = 0.3  # for programs that ignore their stop signal
NOWHERE = "sha256:" + "0" * 64
ABSENT = "lanectl-contract-absent"


@pytest.fixture
def engine(harness: Harness) -> ContainerEngine:
    return harness.engine


def _run(harness: Harness, script: Script, name: str = "a") -> str:
    """Create and start a container; return its id."""
    container_id = harness.engine.create(harness.args(name, script))
    harness.engine.start(container_id)
    return container_id


def _see(engine: ContainerEngine, ref: str) -> Container:
    container = engine.inspect(ref)
    assert container is not None
    return container


def _ended(engine: ContainerEngine, ref: str) -> Container:
    def look() -> Container | None:
        container = _see(engine, ref)
        return None if container.active else container

    ended = until(look, SOON_S, f"{ref} ended")
    assert ended is not None
    return ended


def _first_line(engine: ContainerEngine, ref: str) -> str:
    log = engine.logs(ref)
    try:
        return next(log)
    finally:
        log.close()


class TestInfo:
    def test_it_says_who_it_is_and_says_the_same_again(self, engine: ContainerEngine) -> None:
        info = engine.info()
        assert info.kind
        assert info.id
        assert engine.info().id == info.id


class TestImages:
    def test_an_image_is_found_by_its_id(self, harness: Harness) -> None:
        image = harness.engine.image(harness.image)
        assert image is not None
        assert harness.engine.image(image.id) == image

    @pytest.mark.parametrize("ref", [NOWHERE, f"nowhere@{NOWHERE}"])
    def test_an_image_that_is_not_there_is_none_and_is_not_pulled(self, engine: ContainerEngine, ref: str) -> None:
        assert engine.image(ref) is None

    def test_a_keep_tag_is_given_and_dropped_as_often_as_asked(self, harness: Harness) -> None:
        image = harness.engine.image(harness.image)
        assert image is not None
        tag = f"lanectl-keep:{harness.unique('tag')}"
        harness.engine.keep_image(image.id, tag)
        harness.engine.keep_image(image.id, tag)
        harness.engine.drop_image_tag(tag)
        harness.engine.drop_image_tag(tag)
        assert harness.engine.image(harness.image) == image


class TestCreate:
    def test_it_creates_and_does_not_start(self, harness: Harness) -> None:
        name = harness.unique("a")
        container_id = harness.engine.create(harness.args("a", Script(), labels={"lanectl.lane": "v25"}))
        container = _see(harness.engine, container_id)
        assert (container.id, container.name, container.status) == (container_id, name, Status.CREATED)
        assert not container.active
        assert (container.exit_code, container.pid, container.started_at) == (None, None, "")
        assert container.labels["lanectl.lane"] == "v25"
        image = harness.engine.image(harness.image)
        assert image is not None
        assert container.image_id == image.id
        assert container.created_at

    def test_a_name_in_use_is_refused_and_its_owner_untouched(self, harness: Harness) -> None:
        first = _run(harness, Script())
        with pytest.raises(NameTaken):
            harness.engine.create(harness.args("a", Script()))
        assert _see(harness.engine, first).running

    def test_a_missing_image_is_not_there_and_nothing_is_made(self, harness: Harness) -> None:
        with pytest.raises(NotThere):
            harness.engine.create(harness.args("a", Script(), image=NOWHERE))
        assert harness.engine.inspect(harness.unique("a")) is None


class TestStart:
    def test_it_runs_with_a_pid_and_a_time(self, harness: Harness) -> None:
        container = _see(harness.engine, _run(harness, Script()))
        assert container.status is Status.RUNNING
        assert container.pid
        assert container.started_at
        assert container.exit_code is None

    def test_twice_is_fine_and_starts_nothing_anew(self, harness: Harness) -> None:
        container_id = _run(harness, Script())
        before = _see(harness.engine, container_id)
        harness.engine.start(container_id)
        assert _see(harness.engine, container_id) == before

    def test_an_ended_container_runs_again_with_the_same_id(self, harness: Harness) -> None:
        container_id = _run(harness, Script())
        first = _see(harness.engine, container_id).started_at
        harness.engine.stop(container_id, GRACE_S)
        harness.engine.start(container_id)
        again = _see(harness.engine, container_id)
        assert again.status is Status.RUNNING
        assert again.started_at > first
        assert again.exit_code is None

    def test_no_such_container(self, engine: ContainerEngine) -> None:
        with pytest.raises(NotThere):
            engine.start(ABSENT)


class TestExit:
    @pytest.mark.parametrize("code", [0, 1, 42])
    def test_the_exit_code_is_the_programs(self, harness: Harness, code: int) -> None:
        container = _ended(harness.engine, _run(harness, says("bye\n", exits=code)))
        assert (container.status, container.exit_code) == (Status.EXITED, code)
        assert container.finished_at >= container.started_at
        assert container.pid is None

    def test_T27_killed_is_137_and_out_of_memory_only_when_the_engine_says_so(self, harness: Harness) -> None:
        container_id = _run(harness, Script())
        harness.engine.kill(container_id)
        container = _see(harness.engine, container_id)
        assert (container.exit_code, container.oom_killed) == (137, False)


class TestStop:
    def test_a_program_that_obeys_ends_by_its_signal(self, harness: Harness) -> None:
        container_id = _run(harness, Script(writes=(Write(b"ready\n"),), term_code=0))
        assert _first_line(harness.engine, container_id) == "ready"
        stopped = harness.engine.stop(container_id, GRACE_S)
        assert (stopped.how, stopped.exit_code) == ("term", 0)
        assert 0 <= stopped.seconds < GRACE_S
        assert not _see(harness.engine, container_id).active

    def test_its_own_exit_code_is_told(self, harness: Harness) -> None:
        container_id = _run(harness, Script(writes=(Write(b"ready\n"),), term_code=3))
        assert _first_line(harness.engine, container_id) == "ready"
        stopped = harness.engine.stop(container_id, GRACE_S)
        assert (stopped.how, stopped.exit_code) == ("term", 3)

    def test_T20_T53_a_stop_that_is_ignored_ends_in_a_kill_by_our_own_clock(self, harness: Harness) -> None:
        container_id = _run(harness, Script(writes=(Write(b"ready\n"),), term_code=None))
        assert _first_line(harness.engine, container_id) == "ready"
        stopped = harness.engine.stop(container_id, SHORT_GRACE_S)
        assert (stopped.how, stopped.exit_code) == ("kill", 137)
        assert stopped.seconds >= SHORT_GRACE_S
        container = _see(harness.engine, container_id)
        assert (container.status, container.oom_killed) == (Status.EXITED, False)

    def test_twice_is_fine(self, harness: Harness) -> None:
        container_id = _run(harness, Script())
        harness.engine.stop(container_id, SHORT_GRACE_S)
        before = _see(harness.engine, container_id)
        again = harness.engine.stop(container_id, SHORT_GRACE_S)
        assert (again.how, again.exit_code) == ("already", before.exit_code)
        assert _see(harness.engine, container_id) == before

    def test_one_that_ended_by_itself_or_never_began(self, harness: Harness) -> None:
        ended = _run(harness, says(exits=1))
        _ended(harness.engine, ended)
        assert (harness.engine.stop(ended, GRACE_S).how, _see(harness.engine, ended).exit_code) == ("already", 1)
        created = harness.engine.create(harness.args("b", Script()))
        assert harness.engine.stop(created, GRACE_S).how == "already"
        assert _see(harness.engine, created).status is Status.CREATED

    def test_no_such_container(self, engine: ContainerEngine) -> None:
        with pytest.raises(NotThere):
            engine.stop(ABSENT, GRACE_S)


class TestKill:
    def test_it_ends_at_once_whatever_the_program_ignores(self, harness: Harness) -> None:
        container_id = _run(harness, Script(term_code=None))
        harness.engine.kill(container_id)
        container = _see(harness.engine, container_id)
        assert (container.status, container.exit_code) == (Status.EXITED, 137)

    def test_a_frozen_container_dies_too(self, harness: Harness) -> None:
        container_id = _run(harness, Script(term_code=None))
        harness.pause(container_id)
        harness.engine.kill(container_id)
        container = _see(harness.engine, container_id)
        assert (container.status, container.exit_code) == (Status.EXITED, 137)

    def test_not_running_is_fine(self, harness: Harness) -> None:
        container_id = harness.engine.create(harness.args("a", Script()))
        harness.engine.kill(container_id)
        assert _see(harness.engine, container_id).status is Status.CREATED
        harness.engine.start(container_id)
        harness.engine.kill(container_id)
        before = _see(harness.engine, container_id)
        harness.engine.kill(container_id)
        assert _see(harness.engine, container_id) == before

    def test_no_such_container(self, engine: ContainerEngine) -> None:
        with pytest.raises(NotThere):
            engine.kill(ABSENT)


class TestRename:
    def test_a_running_container_is_parked_and_its_name_is_free(self, harness: Harness) -> None:
        old, parked = harness.unique("a"), harness.unique("a.parked.s1")
        container_id = _run(harness, Script())
        harness.engine.rename(container_id, parked)
        assert harness.engine.inspect(old) is None
        container = _see(harness.engine, parked)
        assert (container.id, container.name, container.running) == (container_id, parked, True)
        candidate = harness.engine.create(harness.args("a", Script()))
        assert _see(harness.engine, old).id == candidate

    def test_the_name_it_has_is_fine(self, harness: Harness) -> None:
        container_id = harness.engine.create(harness.args("a", Script()))
        harness.engine.rename(container_id, harness.unique("a"))
        harness.engine.rename(harness.unique("a"), harness.unique("a"))
        assert _see(harness.engine, container_id).name == harness.unique("a")

    def test_anothers_name_is_refused(self, harness: Harness) -> None:
        first = harness.engine.create(harness.args("a", Script()))
        second = harness.engine.create(harness.args("b", Script()))
        with pytest.raises(NameTaken):
            harness.engine.rename(second, harness.unique("a"))
        assert _see(harness.engine, harness.unique("a")).id == first
        assert _see(harness.engine, harness.unique("b")).id == second

    def test_no_such_container(self, harness: Harness) -> None:
        with pytest.raises(NotThere):
            harness.engine.rename(ABSENT, harness.unique("a"))


class TestRestartPolicy:
    def test_it_is_set_and_read_back(self, harness: Harness) -> None:
        if not harness.restarts:
            pytest.skip(f"{harness.name} restarts nothing by itself, and has no other policy than `no`")
        container_id = harness.engine.create(harness.args("a", Script()))
        assert _see(harness.engine, container_id).restart == Restart("no")
        for policy in (Restart("unless-stopped"), Restart("on-failure", 3), Restart("no"), Restart("no")):
            harness.engine.set_restart(container_id, policy)
            assert _see(harness.engine, container_id).restart == policy

    def test_it_can_be_changed_while_it_runs(self, harness: Harness) -> None:
        if not harness.restarts:
            pytest.skip(f"{harness.name} restarts nothing by itself, and has no other policy than `no`")
        container_id = harness.engine.create(harness.args("a", Script(), restart=Restart("unless-stopped")))
        harness.engine.start(container_id)
        before = _see(harness.engine, container_id)
        assert before.restart == Restart("unless-stopped")
        harness.engine.set_restart(container_id, Restart("no"))
        after = _see(harness.engine, container_id)
        assert (after.restart, after.pid) == (Restart("no"), before.pid)

    def test_T04_a_restart_loop_is_seen_as_one_and_a_stop_ends_it(self, harness: Harness) -> None:
        if not harness.restarts:
            pytest.skip(f"{harness.name} restarts nothing by itself")
        container_id = harness.engine.create(harness.args("a", says(exits=1), restart=Restart("always")))
        harness.engine.start(container_id)
        until(lambda: _see(harness.engine, container_id).restart_count >= 2, SOON_S, "it was restarted twice")
        assert until(lambda: _see(harness.engine, container_id).status is Status.RESTARTING, SOON_S, "in back-off")
        harness.engine.stop(container_id, GRACE_S)
        container = _see(harness.engine, container_id)
        assert (container.status, container.active) == (Status.EXITED, False)

    def test_no_such_container(self, engine: ContainerEngine) -> None:
        with pytest.raises(NotThere):
            engine.set_restart(ABSENT, Restart("no"))


class TestRemove:
    def test_it_is_gone_when_the_call_returns_and_its_name_is_free(self, harness: Harness) -> None:
        for _ in range(3):
            container_id = _run(harness, Script(term_code=None))
            harness.engine.remove(container_id)
            assert harness.engine.inspect(container_id) is None
            assert harness.engine.inspect(harness.unique("a")) is None

    def test_created_exited_and_gone_ones_too(self, harness: Harness) -> None:
        created = harness.engine.create(harness.args("a", Script()))
        ended = _run(harness, says(exits=0), "b")
        _ended(harness.engine, ended)
        for container_id in (created, ended, created, ended):
            harness.engine.remove(container_id)
            assert harness.engine.inspect(container_id) is None

    def test_no_such_container_is_fine(self, engine: ContainerEngine) -> None:
        engine.remove(ABSENT)

    def test_T22_two_removals_at_once_both_return_when_it_is_gone(self, harness: Harness) -> None:
        container_id = _run(harness, Script(term_code=None))
        failed: list[Exception] = []

        def remove() -> None:
            try:
                harness.engine.remove(container_id)
                assert harness.engine.inspect(container_id) is None
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=remove, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON_S)
        assert failed == []
        assert not any(thread.is_alive() for thread in threads)


class TestInspectAndList:
    def test_by_id_and_by_name_it_is_the_same_container(self, harness: Harness) -> None:
        container_id = harness.engine.create(harness.args("a", Script()))
        assert harness.engine.inspect(harness.unique("a")) == harness.engine.inspect(container_id)

    @pytest.mark.parametrize("ref", [ABSENT, "", "0" * 64])
    def test_none_when_there_is_none(self, engine: ContainerEngine, ref: str) -> None:
        assert engine.inspect(ref) is None

    def test_the_beginning_of_an_id_is_not_a_name(self, harness: Harness) -> None:
        """A lane whose container is called "cafe" must not be taken for one whose id begins with it."""
        container_id = _run(harness, Script())
        assert harness.engine.inspect(container_id[:4]) is None
        with pytest.raises(NotThere):
            harness.engine.kill(container_id[:4])
        harness.engine.remove(container_id[:4])
        assert _see(harness.engine, container_id).running

    def test_frozen_counts_as_running(self, harness: Harness) -> None:
        container_id = _run(harness, Script())
        harness.pause(container_id)
        assert _see(harness.engine, container_id).running

    def test_lists_by_every_label_stopped_ones_too(self, harness: Harness) -> None:
        mark = harness.unique("mark")
        both = harness.engine.create(harness.args("a", Script(), labels={"t.mark": mark, "t.role": "server"}))
        one = harness.engine.create(harness.args("b", says(exits=0), labels={"t.mark": mark, "t.role": "sidecar"}))
        harness.engine.create(harness.args("c", Script(), labels={"t.role": "server"}))
        harness.engine.start(one)
        _ended(harness.engine, one)

        def found(labels: dict[str, str]) -> set[str]:
            return {container.id for container in harness.engine.containers(labels)}

        assert found({"t.mark": mark}) == {both, one}
        assert found({"t.mark": mark, "t.role": "server"}) == {both}
        assert found({"t.mark": mark, "t.role": ""}) == {both, one}
        assert found({"t.mark": mark, "t.absent": ""}) == set()
        assert found({}) >= {both, one}
        assert {container.id for container in harness.engine.containers()} >= {both, one}
        assert _see(harness.engine, both) in harness.engine.containers({"t.mark": mark})


class TestRecreate:
    def test_the_arguments_make_an_equal_container_that_does_the_same(self, harness: Harness) -> None:
        script = says("one\n", "two\n", exits=7)
        labels = {"lanectl.lane": "v25", "other": "x=y"}
        restart = Restart("on-failure", 1) if harness.restarts else Restart("no")
        original = harness.engine.create(harness.args("a", script, labels=labels, restart=restart))
        args = harness.engine.recreate_args(original)
        before = _see(harness.engine, original)
        assert args.name == before.name
        harness.engine.remove(original)

        made = harness.engine.create(args)
        after = _see(harness.engine, made)
        assert after.id != before.id
        for field in ("name", "image_id", "status", "restart", "devices", "network_mode", "labels"):
            assert getattr(after, field) == getattr(before, field), field
        harness.engine.set_restart(made, Restart("no"))
        harness.engine.start(made)
        assert _ended(harness.engine, made).exit_code == 7
        assert list(harness.engine.logs(made)) == ["one", "two"]

    def test_the_arguments_of_what_they_made_are_the_same(self, harness: Harness) -> None:
        args = harness.engine.recreate_args(_run(harness, Script()))
        harness.engine.remove(args.name)
        again = harness.engine.recreate_args(harness.engine.create(args))
        assert again == CreateArgs(args.name, args.body)

    def test_no_such_container(self, engine: ContainerEngine) -> None:
        with pytest.raises(NotThere):
            engine.recreate_args(ABSENT)


class TestLogs:
    def test_T12_lines_are_whole_in_every_split_of_their_bytes(self, harness: Harness) -> None:
        text = "größe 中文 \U0001f600\n".encode()
        pieces = tuple(Write(text[index : index + 1], then_wait_s=0.02) for index in range(len(text)))
        container_id = _run(harness, Script((Write(b"first\n"), *pieces), exits=0))
        assert list(harness.engine.logs(container_id)) == ["first", "größe 中文 \U0001f600"]

    def test_T12_a_line_longer_than_a_frame_is_one_line(self, harness: Harness) -> None:
        long = "x" * 40_000 + "é"
        halves = long.encode()[:20_000], long.encode()[20_000:]
        script = Script((Write(halves[0], then_wait_s=0.05), Write(halves[1]), Write(b"\nend\n")), exits=0)
        assert list(harness.engine.logs(_run(harness, script))) == [long, "end"]

    def test_bad_bytes_are_replaced_and_empty_lines_kept(self, harness: Harness) -> None:
        container_id = _run(harness, Script((Write(b"a\xff\xfeb\n\nc\r\n"),), exits=0))
        assert list(harness.engine.logs(container_id)) == ["a��b", "", "c"]

    def test_a_last_line_without_an_end_is_not_lost(self, harness: Harness) -> None:
        container_id = _run(harness, says("whole\n", "half", exits=1))
        assert list(harness.engine.logs(container_id)) == ["whole", "half"]

    def test_both_streams_in_order_of_arrival(self, harness: Harness) -> None:
        script = Script(
            (
                Write(b"out 1\n", OUT, 0.1),
                Write(b"err 1\n", ERR, 0.1),
                Write(b"out 2\n", OUT, 0.1),
                Write(b"err 2", ERR),
            ),
            exits=0,
        )
        assert list(harness.engine.logs(_run(harness, script))) == ["out 1", "err 1", "out 2", "err 2"]

    def test_following_shows_lines_while_it_runs_and_ends_when_it_ends(self, harness: Harness) -> None:
        container_id = _run(harness, Script((Write(b"loading\n", then_wait_s=0.3), Write(b"serving\n"))))
        log = harness.engine.logs(container_id)
        assert next(log) == "loading"
        assert _see(harness.engine, container_id).running
        assert next(log) == "serving"
        harness.engine.kill(container_id)
        assert list(log) == []

    def test_without_following_it_ends_with_what_is_there(self, harness: Harness) -> None:
        container_id = _run(harness, says("one\n", "two\n"))
        until(
            lambda: list(harness.engine.logs(container_id, follow=False)) == ["one", "two"],
            SOON_S,
            "both lines are there",
        )
        assert _see(harness.engine, container_id).running

    def test_only_this_run_unless_asked_for_all(self, harness: Harness) -> None:
        container_id = _run(harness, says("run\n"))
        for _ in range(2):
            assert _first_line(harness.engine, container_id) == "run"
            harness.engine.stop(container_id, GRACE_S)
            harness.engine.start(container_id)
        assert _first_line(harness.engine, container_id) == "run"
        assert list(harness.engine.logs(container_id, follow=False)) == ["run"]
        assert list(harness.engine.logs(container_id, since_start=False, follow=False)) == ["run"] * 3

    def test_the_very_first_line_is_never_missed(self, harness: Harness) -> None:
        container_id = harness.engine.create(harness.args("a", says("first\n", exits=0)))
        for _ in range(10):
            harness.engine.start(container_id)
            _ended(harness.engine, container_id)
            assert list(harness.engine.logs(container_id)) == ["first"]

    def test_of_one_that_never_ran_is_empty(self, harness: Harness) -> None:
        container_id = harness.engine.create(harness.args("a", says("x\n")))
        assert list(harness.engine.logs(container_id, follow=False)) == []

    def test_closing_from_another_thread_ends_a_wait(self, harness: Harness) -> None:
        container_id = _run(harness, says("only\n"))
        log = harness.engine.logs(container_id)
        assert next(log) == "only"
        rest: list[str] = []
        reader = threading.Thread(target=lambda: rest.extend(log), daemon=True)
        reader.start()
        time.sleep(0.05)  # not to wait for a state: so that the reader is most likely blocked when it is closed
        log.close()
        reader.join(SOON_S)
        assert not reader.is_alive()
        assert rest == []
        log.close()
        assert list(log) == []
        assert _first_line(harness.engine, container_id) == "only"  # others are not hurt

    def test_no_such_container(self, engine: ContainerEngine) -> None:
        with pytest.raises(NotThere):
            engine.logs(ABSENT)


class TestPids:
    def test_all_of_its_processes_while_it_runs_and_none_afterwards(self, harness: Harness) -> None:
        container_id = _run(harness, Script(children=2))

        def look() -> frozenset[int]:
            pids = harness.engine.pids(container_id)
            assert pids is not None
            return pids if len(pids) >= 3 else frozenset()

        pids = until(look, SOON_S, "the program and its two children are seen")
        assert _see(harness.engine, container_id).pid in pids
        harness.engine.kill(container_id)
        assert harness.engine.pids(container_id) == frozenset()

    def test_none_before_it_was_started(self, harness: Harness) -> None:
        container_id = harness.engine.create(harness.args("a", Script()))
        assert harness.engine.pids(container_id) == frozenset()

    def test_no_such_container(self, engine: ContainerEngine) -> None:
        with pytest.raises(NotThere):
            engine.pids(ABSENT)


class TestDevices:
    UNKNOWN = "nvidia.com/gpu=GPU-99999999-0000-4000-8000-000000000000"

    @pytest.fixture
    def known(self, harness: Harness) -> str:
        if harness.known_device is None:
            pytest.skip(f"this {harness.name} engine knows no test device")
        return harness.known_device

    def test_T28_an_unknown_name_is_told_before_anything_is_stopped(self, harness: Harness) -> None:
        before = {container.id for container in harness.engine.containers()}
        said = harness.engine.cdi_problem(harness.image, [self.UNKNOWN])
        assert said is not None
        assert self.UNKNOWN in said
        assert {c.id for c in harness.engine.containers({"lanectl.role": "cdi-probe"})} <= before

    def test_T28_an_unknown_name_fails_the_start_and_the_container_never_ran(self, harness: Harness) -> None:
        container_id = harness.engine.create(harness.args("a", Script(), devices=(self.UNKNOWN,)))
        with pytest.raises(DeviceUnknown, match=self.UNKNOWN):
            harness.engine.start(container_id)
        container = _see(harness.engine, container_id)
        assert (container.active, container.started_at) == (False, "")

    def test_a_known_name_is_no_problem_and_is_told_of_the_container(self, harness: Harness, known: str) -> None:
        assert harness.engine.cdi_problem(harness.image, [known]) is None
        container_id = harness.engine.create(harness.args("a", Script(), devices=(known,)))
        harness.engine.start(container_id)
        container = _see(harness.engine, container_id)
        assert (container.devices, container.running) == ((known,), True)

    def test_the_engine_lists_the_names_it_knows_or_says_that_it_cannot(self, harness: Harness, known: str) -> None:
        names = harness.engine.info().cdi_devices
        assert names is None or known in names
