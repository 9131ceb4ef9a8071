"""The local engine with real processes: what a service is given, what becomes of its tree, who may die when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanectl.core.container import Status
from lanectl.core.lane import Restart
from lanectl.engine import shim
from lanectl.engine.local import LocalEngine
from lanectl.engine.local_run import supervised
from lanectl.errors import DeviceUnknown, EngineError, NameTaken, NotThere, Refused
from lanectl.jobs import DetachedJobs
from lanectl.store.process import alive, identify, stat
from tests.support.local_services import GPU, SOON_S, LocalServices, local_services
from tests.support.poll import until

GRACE_S = 10.0
SLEEP = "import time; print('up'); time.sleep(1000)"
# Starts two processes below itself: a plain child, and one that left the session and its parent, as daemons do.
FAMILY = """
import os, sys, time
if os.fork() == 0:
    time.sleep(1000)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", os.getpid())
        time.sleep(1000)
    os._exit(0)
os.wait()
print("up", os.getpid())
{then}
"""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalServices]:
    with local_services(tmp_path) as services:
        yield services


def family(local: LocalServices, then: str = "time.sleep(1000)") -> list[int]:
    """Run a service of four processes, counting the daemon's parent that ended; return the pids of the living ones."""
    container_id = local.python("svc", FAMILY.format(then=then))
    local.lines(container_id, 2)
    pids = until(lambda: len(found := local.engine.pids("svc") or ()) == 3 and found, SOON_S, "three processes")
    assert pids
    return sorted(pids)


class TestWhatAServiceIsGiven:
    CODE = """
import os, sys
print(sorted(os.environ.items()))
print(os.getcwd(), oct(os.umask(0)), repr(sys.stdin.read()), os.getsid(0) == os.getpid())
print(sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1])
import signal
print(sorted(int(s) for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN))
print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
"""

    def test_nothing_of_lanectl_leaks_in(self, local: LocalServices, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", "secret")
        monkeypatch.setenv("TZ", "UTC")
        leak = os.open("/dev/null", os.O_RDONLY)
        os.set_inheritable(leak, True)
        try:
            container_id = local.python("svc", self.CODE, Env=["A=1", "PATH=/bin"], WorkingDir="/usr")
        finally:
            os.close(leak)
        environment, place, fds, ignored, blocked = local.lines(container_id, 5)
        home = os.path.expanduser("~")  # noqa: PTH111 - as the account says
        assert dict(eval(environment)) == {
            "A": "1",
            "HOME": home,
            "LANG": "C.UTF-8",
            "LANECTL_CONTAINER": container_id,
            "PATH": "/bin",
            "TZ": "UTC",
        }
        assert place == "/usr 0o22 '' True"
        assert fds == "[0, 1, 2]"
        python_ignores = [signal.SIGPIPE, signal.SIGXFSZ]
        assert ignored == str(sorted(int(number) for number in python_ignores))
        assert blocked == "[]"

    def test_a_cdi_devices_environment_wins_over_the_body(self, local: LocalServices) -> None:
        requests = [{"Driver": "cdi", "DeviceIDs": [GPU]}]
        code = "import os; print(os.environ['VISIBLE'])"
        container_id = local.python("svc", code, Env=["VISIBLE=all"], host={"DeviceRequests": requests})
        assert local.lines(container_id, 1) == [GPU.partition("=")[2]]
        assert local.see("svc").devices == (GPU,)

    def test_T28_the_engine_says_which_devices_it_knows(self, local: LocalServices) -> None:
        assert local.engine.info().cdi_devices == (GPU,)
        requests = [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]
        local.engine.create(local.args("svc", "/bin/true", host={"DeviceRequests": requests}))
        with pytest.raises(DeviceUnknown, match=GPU):
            local.engine.start("svc")

    def test_programs_of_the_environment_come_first_on_the_path(self, local: LocalServices) -> None:
        program = local.environment / "bin" / "serve"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho from the environment\n")
        program.chmod(0o755)
        services = LocalServices(local.folder)
        container_id = services.run("svc", "serve")
        assert services.lines(container_id, 1) == ["from the environment"]

    def test_a_stop_signal_of_its_own(self, local: LocalServices) -> None:
        code = "import os, signal; signal.signal(signal.SIGINT, lambda *_: os._exit(5)); print('up'); signal.pause()"
        container_id = local.python("svc", code, StopSignal="SIGINT")
        local.lines(container_id, 1)
        stopped = local.engine.stop("svc", GRACE_S)
        assert (stopped.how, stopped.exit_code) == ("term", 5)


class TestWhatCannotBeHad:
    def test_a_program_that_is_not_there_fails_the_start_and_says_so(self, local: LocalServices) -> None:
        local.engine.create(local.args("svc", "/no/such/program"))
        for _ in range(2):
            with pytest.raises(EngineError, match="cannot run /no/such/program: No such file"):
                local.engine.start("svc")
        assert "No such file" in local.see("svc").error
        assert not local.see("svc").active

    def test_a_file_that_is_no_program(self, local: LocalServices, tmp_path: Path) -> None:
        (tmp_path / "plain").write_text("")
        local.engine.create(local.args("svc", str(tmp_path / "plain")))
        with pytest.raises(EngineError, match="Permission denied"):
            local.engine.start("svc")
        container = local.see("svc")
        assert (container.status, container.started_at, container.exit_code) == (Status.CREATED, "", None)

    def test_a_working_directory_that_went_away_is_named(self, local: LocalServices, tmp_path: Path) -> None:
        place = tmp_path / "place"
        place.mkdir()
        local.engine.create(local.args("svc", "/bin/true", WorkingDir=str(place)))
        place.rmdir()
        with pytest.raises(EngineError, match=f"cannot enter {place}: No such file"):
            local.engine.start("svc")

    def test_a_running_service_is_started_also_when_its_device_is_gone(self, local: LocalServices) -> None:
        requests = [{"Driver": "cdi", "DeviceIDs": [GPU]}]
        local.python("svc", SLEEP, host={"DeviceRequests": requests})
        (local.cdi / "gpu.json").unlink()
        local.engine.start("svc")
        local.engine.kill("svc")
        with pytest.raises(DeviceUnknown):
            local.engine.start("svc")

    def test_mounts_and_directories_are_looked_for_before_anything_is_made(self, local: LocalServices) -> None:
        with pytest.raises(Refused) as refused:
            local.engine.create(
                local.args("svc", "/bin/true", WorkingDir="/no/dir", host={"Binds": ["/no/map:/no/map:ro"]})
            )
        assert [problem.message for problem in refused.value.problems] == [
            "/no/map does not exist",
            "/no/dir does not exist",
        ]
        assert local.engine.inspect("svc") is None

    def test_a_changed_environment_is_another_image(self, local: LocalServices) -> None:
        image = local.engine.image(local.image)
        assert image is not None
        assert image.digests == (local.image,)
        (local.environment / "README").write_text("changed")
        assert local.engine.image(local.image) is None
        assert local.engine.image(image.id) is None
        with pytest.raises(NotThere, match="no environment env:") as refused:
            local.engine.create(local.args("svc", "/bin/true"))
        assert "its content changed" in (refused.value.hint or "")

    def test_restarts(self, local: LocalServices) -> None:
        local.engine.create(local.args("svc", "/bin/true"))
        local.engine.set_restart("svc", Restart("no"))
        with pytest.raises(EngineError, match="no restart policy always"):
            local.engine.set_restart("svc", Restart("always"))


class TestTheWholeTree:
    def test_T15_a_kill_leaves_no_process_behind(self, local: LocalServices) -> None:
        known = [identify(pid) for pid in family(local)]
        local.engine.kill("svc")
        assert [process for process in known if process and alive(process)] == []
        assert local.engine.pids("svc") == frozenset()
        assert local.see("svc").exit_code == 137

    @pytest.mark.parametrize("code", [0, 1])
    def test_T01_T15_when_the_service_ends_so_does_what_it_started(self, local: LocalServices, code: int) -> None:
        known = [identify(pid) for pid in family(local, then=f"time.sleep(0.2); os._exit({code})")]
        assert local.ended("svc").exit_code == code
        assert [process for process in known if process and alive(process)] == []

    def test_T27_a_signals_exit_code_is_as_docker_shows_it(self, local: LocalServices) -> None:
        local.run("svc", "/bin/sh", "-c", "kill -SEGV $$")
        container = local.ended("svc")
        assert (container.exit_code, container.oom_killed) == (128 + signal.SIGSEGV, False)

    def test_a_stop_asks_the_service_alone(self, local: LocalServices) -> None:
        """A server ends its own workers in its own order; a signal to all of them would cut their work off."""
        code = """
import os, signal, time
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(66))
    print("worker up")
    while True: time.sleep(1000)
def stop(*_):
    time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    print("worker ended by", os.waitpid(pid, 0)[1])
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
print("up")
while True: time.sleep(1000)
"""
        container_id = local.python("svc", code)
        local.lines(container_id, 2)
        assert local.engine.stop("svc", GRACE_S).how == "term"
        assert list(local.engine.logs("svc"))[-1] == f"worker ended by {int(signal.SIGKILL)}"

    def test_T53_a_frozen_service_is_paused_and_a_stop_ends_it_by_a_kill(self, local: LocalServices) -> None:
        container_id = local.python("svc", SLEEP)
        local.lines(container_id, 1)
        pid = local.see("svc").pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        until(lambda: local.see("svc").status is Status.PAUSED, SOON_S, "paused")
        assert local.see("svc").running
        assert local.engine.stop("svc", 0.1).how == "kill"
        assert local.see("svc").exit_code == 137

    def test_output_after_the_service_closed_its_own_is_no_end(self, local: LocalServices) -> None:
        local.python("svc", "import os, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(9)")
        assert local.see("svc").running
        assert local.ended("svc").exit_code == 9


class TestKilledSupervisor:
    def test_T35_its_service_dies_with_it_and_the_exit_code_is_not_invented(self, local: LocalServices) -> None:
        local.python("svc", SLEEP)
        main = identify(local.see("svc").pid or 0)
        assert main is not None
        os.kill(local.supervisor("svc").pid, signal.SIGKILL)
        container = local.ended("svc")
        assert not alive(main)
        assert (container.status, container.exit_code) == (Status.EXITED, None)
        assert "supervisor was killed" in container.error
        stopped = local.engine.stop("svc", GRACE_S)
        assert (stopped.how, stopped.exit_code) == ("already", None)
        assert local.see("svc") == container

    @pytest.mark.parametrize("verb", ["start", "stop", "kill", "remove"])
    def test_T15_what_survived_it_is_found_and_killed(self, local: LocalServices, verb: str) -> None:
        survivors = family(local)
        os.kill(local.supervisor("svc").pid, signal.SIGKILL)
        local.ended("svc")
        known = [identify(pid) for pid in survivors if stat(pid) is not None]
        left = [process for process in known if process and alive(process)]
        assert len(left) == 2, "the child and the daemon outlive the supervisor: nothing tells them"
        assert local.engine.pids("svc") == {process.pid for process in left}
        if verb == "stop":
            local.engine.stop("svc", GRACE_S)
        else:
            getattr(local.engine, verb)("svc")
        assert [process for process in left if alive(process)] == []
        if verb == "start":
            assert local.see("svc").running
            assert local.see("svc").exit_code is None

    def test_T15_found_also_when_a_program_overwrote_its_environment(self, local: LocalServices) -> None:
        """setproctitle does that; the session still tells."""
        container_id = local.run("svc", "/bin/sh", "-c", "env -i sleep 1000 & echo $!; wait")
        worker = identify(int(local.lines(container_id, 1)[0]))
        assert worker is not None
        until(lambda: Path(f"/proc/{worker.pid}/environ").read_bytes() == b"", SOON_S, "the worker has no environment")
        os.kill(local.supervisor("svc").pid, signal.SIGKILL)
        local.ended("svc")
        assert alive(worker)
        local.engine.kill("svc")
        assert not alive(worker)

    def test_a_stopped_supervisor_is_woken_to_clear_away_the_rest(self, local: LocalServices) -> None:
        family(local)
        os.kill(local.supervisor("svc").pid, signal.SIGSTOP)
        local.engine.kill("svc")
        assert local.see("svc").exit_code == 137
        assert local.engine.pids("svc") == frozenset()


class TestIdentity:
    def forge(self, local: LocalServices, **changes: object) -> None:
        """Rewrite the run record, as if time had passed differently; the supervisor is gone."""
        record = local.record("svc") | changes
        os.kill(local.supervisor("svc").pid, signal.SIGKILL)
        until(lambda: not local.see("svc").running, SOON_S, "the supervisor is gone")
        shim.write_record(str(local.directory("svc")), record)

    def test_T35_a_reused_pid_is_somebody_else(self, local: LocalServices) -> None:
        local.python("svc", SLEEP)
        bystander = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        try:
            known = identify(bystander.pid)
            assert known is not None
            self.forge(local, main=[known.pid, known.start_time - 1])
            container = local.see("svc")
            assert (container.status, container.pid) == (Status.EXITED, None)
            assert local.engine.stop("svc", GRACE_S).how == "already"
            local.engine.kill("svc")
            local.engine.start("svc")
            local.engine.remove("svc")
            assert alive(known), "who has the pid now must not be touched"
        finally:
            bystander.kill()
            bystander.wait()

    def test_T35_a_process_of_an_earlier_boot_is_gone(self, local: LocalServices) -> None:
        local.python("svc", SLEEP)
        bystander = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        try:
            known = identify(bystander.pid)
            assert known is not None
            self.forge(local, main=[known.pid, known.start_time], boot_id="an earlier boot")
            container = local.see("svc")
            assert (container.status, container.exit_code) == (Status.EXITED, None)
            assert "restarted while it ran" in container.error
            local.engine.stop("svc", GRACE_S)
            assert alive(known)
            local.engine.start("svc")
            assert local.see("svc").running
        finally:
            bystander.kill()
            bystander.wait()

    def test_damaged_records_do_not_hide_a_running_service(self, local: LocalServices) -> None:
        container_id = local.python("svc", SLEEP)
        local.lines(container_id, 1)
        main = identify(local.see("svc").pid or 0)
        for slot in shim.SLOTS:
            (local.directory("svc") / slot).write_bytes(b"\0" * shim.SLOT_SIZE)
        container = local.see("svc")
        assert container.running
        assert "damaged" in container.error
        local.engine.kill("svc")
        assert main is not None
        assert not alive(main)
        assert local.see("svc").exit_code == 137

    def test_after_damaged_records_a_new_run_still_has_its_log(self, local: LocalServices) -> None:
        local.run("svc", "/bin/echo", "hello")
        local.ended("svc")
        until(lambda: not supervised(str(local.directory("svc"))), SOON_S, "its supervisor has ended")
        for slot in shim.SLOTS:
            (local.directory("svc") / slot).write_bytes(b"")
        assert local.see("svc").status is Status.EXITED
        local.engine.start("svc")
        assert local.lines("svc", 1) == ["hello"]
        assert local.ended("svc").exit_code == 0


START = """
import sys
from pathlib import Path
from lanectl.engine.local import LocalEngine
from lanectl.engine.local_run import supervised
engine = LocalEngine(Path(sys.argv[1]), [])
engine.start("svc")
print(engine.inspect("svc").pid, flush=True)
sys.stdin.read()
"""


class TestSeveralProcesses:
    def starter(self, local: LocalServices) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", START, str(local.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def test_a_service_outlives_the_kill_of_who_started_it(self, local: LocalServices) -> None:
        local.engine.create(local.args("svc", "/bin/sh", "-c", "echo one; while :; do sleep 0.05; echo more; done"))
        starter = self.starter(local)
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        os.killpg(starter.pid, signal.SIGKILL)
        starter.communicate()
        log = local.engine.logs("svc")
        seen = [next(log) for _ in range(5)]
        log.close()
        assert seen == ["one", *["more"] * 4]
        assert local.see("svc").pid == pid
        assert local.engine.stop("svc", GRACE_S).exit_code == 128 + signal.SIGTERM

    def test_T36_starters_at_once_start_it_once(self, local: LocalServices) -> None:
        local.engine.create(local.args("svc", "/bin/sh", "-c", "echo started; sleep 1000"))
        starters = [self.starter(local) for _ in range(4)]
        pids = {int(starter.communicate("")[0]) for starter in starters}
        assert len(pids) == 1
        assert local.record("svc")["run"] == 1
        assert list(local.engine.logs("svc", follow=False)) in ([], ["started"])

    def test_T36_a_starter_killed_at_any_moment_leaves_one_service_or_none(self, local: LocalServices) -> None:
        local.engine.create(local.args("svc", "/bin/sh", "-c", "sleep 1000"))
        for delay in (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3):
            starter = self.starter(local)
            time.sleep(delay)  # not to wait for a state: the moment of the kill is what the test is about
            os.killpg(starter.pid, signal.SIGKILL)
            starter.communicate()
            local.engine.start("svc")
            container = local.see("svc")
            assert container.running
            pids = local.engine.pids("svc")
            assert pids is not None
            assert {container.pid} <= pids
            assert len(pids) <= 2
            local.engine.kill("svc")

    def test_names_are_given_once(self, local: LocalServices) -> None:
        given: list[str] = []
        refused: list[NameTaken] = []

        def create() -> None:
            engine = LocalEngine(local.root, [])
            try:
                given.append(engine.create(local.args("svc", "/bin/true")))
            except NameTaken as error:
                refused.append(error)

        threads = [threading.Thread(target=create) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(given), len(refused)) == (1, 7)
        assert local.see("svc").id == given[0]

    def test_a_container_is_never_out_of_sight_while_it_is_renamed(self, local: LocalServices) -> None:
        container_id = local.engine.create(local.args("svc", "/bin/true"))
        stop = threading.Event()
        missed: list[str] = []

        def watch() -> None:
            engine = LocalEngine(local.root, [])
            while not stop.is_set():
                if engine.inspect(container_id) is None or len(engine.containers()) != 1:
                    missed.append("missed")

        watchers = [threading.Thread(target=watch) for _ in range(2)]
        for watcher in watchers:
            watcher.start()
        for number in range(100):
            local.engine.rename(container_id, f"name.{number}")
        stop.set()
        for watcher in watchers:
            watcher.join()
        assert missed == []

    def test_supervisors_get_a_scope_where_there_is_systemd(self, tmp_path: Path) -> None:
        program = tmp_path / "systemd-run"
        program.write_text(
            '#!/bin/sh\necho "$@" >> "$0.calls"\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
        )
        program.chmod(0o755)
        with local_services(tmp_path, DetachedJobs(str(program))) as local:
            container_id = local.python("svc", SLEEP)
            assert local.see("svc").running
            assert f"--unit=lanectl-{container_id[:12]}" in (tmp_path / "systemd-run.calls").read_text()
