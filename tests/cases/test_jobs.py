"""Detached jobs: they really run, outlive who started them, and keep what they were given and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lanectl.errors import LaneError
from lanectl.jobs import DetachedJobs
from lanectl.store.process import alive, identify, stat
from tests.support.poll import until

# What systemd-run --scope does to a command: it makes a scope around its own process and then becomes the command.
# Newer versions expand variables in it, which no job of ours may notice.
SYSTEMD_RUN = """#!/bin/sh
echo "$@" >> "$0.calls"
case "$*" in *'$'*) echo "would be expanded: $*" >&2; exit 9;; esac
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture(params=["session", "scope"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> DetachedJobs:
    if request.param == "session":
        return DetachedJobs(systemd_run=None)
    program = tmp_path / "systemd-run"
    program.write_text(SYSTEMD_RUN)
    program.chmod(0o755)
    return DetachedJobs(systemd_run=str(program))


def end(pid: int) -> None:
    process = identify(pid)
    if process is not None:
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(process), 10, f"job {pid} is gone")


def test_a_job_has_its_own_session_and_a_private_log(jobs: DetachedJobs, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    code = "import os, sys; print(os.getcwd(), repr(sys.stdin.read()), flush=True); os.read(int(sys.argv[1]), 1)"
    gone, hold = os.pipe()
    pid = jobs.start([sys.executable, "-c", code, str(gone)], name="guard", keep_fds=[gone], log_path=str(log))
    try:
        until(lambda: log.read_text() == "/ ''\n", 20, "the job has written its line")
        found = stat(pid)
        assert found is not None
        assert found.session == pid != os.getsid(0)
        assert log.stat().st_mode & 0o777 == 0o600
    finally:
        os.close(hold)
        os.close(gone)
    until(lambda: stat(pid) is None, 20, "the job ended with its pipe and was reaped")


def test_a_job_keeps_the_named_descriptors_and_no_others(jobs: DetachedJobs, tmp_path: Path) -> None:
    kept_read, kept_write = os.pipe()
    other_read, other_write = os.pipe()
    os.set_inheritable(other_write, True)
    code = "import os, sys; os.write(int(sys.argv[1]), ' '.join(os.listdir('/proc/self/fd')).encode())"
    log = tmp_path / "log"
    jobs.start([sys.executable, "-c", code, str(kept_write)], name="guard", keep_fds=[kept_write], log_path=str(log))
    os.close(kept_write)
    seen = os.read(kept_read, 1000).decode().split()
    for fd in (kept_read, other_read, other_write):
        os.close(fd)
    listing = 1  # the directory that is being listed
    assert {"0", "1", "2", str(kept_write)} <= set(seen)
    assert len(seen) == 4 + listing, f"nothing else is open: {seen}"


def test_a_jobs_words_arrive_as_they_are(jobs: DetachedJobs, tmp_path: Path) -> None:
    words = ["$HOME ${PATH} $$", "", "two  spaces", "größe\n", "-x", "x" * 100_000]
    log = tmp_path / "log"
    code = "import sys; print(ascii(sys.argv[1:]), flush=True)"
    jobs.start([sys.executable, "-c", code, *words], name="guard", keep_fds=[], log_path=str(log))
    until(lambda: log.read_text().endswith("\n"), 20, "the job has written its line")
    assert log.read_text() == ascii(words) + "\n"


def test_a_command_that_cannot_run_is_an_error_not_a_job(jobs: DetachedJobs, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(LaneError, match=r"guard could not be started: cannot run /no/such/program: No such file"):
        jobs.start(["/no/such/program"], name="guard", keep_fds=[], log_path=str(log))
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    with pytest.raises(LaneError, match="Permission denied"):
        jobs.start([str(plain)], name="guard", keep_fds=[], log_path=str(log))


def test_a_log_that_cannot_be_opened_is_an_error(jobs: DetachedJobs, tmp_path: Path) -> None:
    with pytest.raises(LaneError, match="cannot open the log"):
        jobs.start(["/bin/true"], name="guard", keep_fds=[], log_path=str(tmp_path / "no" / "log"))


def test_a_failing_systemd_run_is_an_error_and_its_words_are_kept(tmp_path: Path) -> None:
    program = tmp_path / "systemd-run"
    program.write_text("#!/bin/sh\necho Failed to connect to bus >&2\nexit 1\n")
    program.chmod(0o755)
    log = tmp_path / "log"
    with pytest.raises(LaneError, match="systemd-run failed"):
        DetachedJobs(str(program)).start(["/bin/true"], name="guard", keep_fds=[], log_path=str(log))
    assert log.read_text() == "Failed to connect to bus\n"


def test_the_scope_belongs_to_the_right_manager(tmp_path: Path) -> None:
    program = tmp_path / "systemd-run"
    program.write_text(SYSTEMD_RUN)
    program.chmod(0o755)
    DetachedJobs(str(program)).start(["/bin/true"], name="guard-s1", keep_fds=[], log_path=str(tmp_path / "log"))
    call = (tmp_path / "systemd-run.calls").read_text()
    assert "--scope" in call
    assert "--unit=guard-s1-" in call
    assert ("--user" in call) == (os.geteuid() != 0)


STARTER = """
import sys
from lanectl.jobs import DetachedJobs
jobs = DetachedJobs(systemd_run=None)
print(jobs.start(["sleep", "600"], name="guard", keep_fds=[], log_path=sys.argv[1]), flush=True)
sys.stdin.read()
"""


def test_a_job_outlives_the_kill_of_who_started_it(tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert starter.stdout is not None
    job = identify(int(starter.stdout.readline()))
    assert job is not None
    try:
        os.killpg(starter.pid, signal.SIGKILL)
        starter.communicate()
        deadline = time.monotonic() + 0.3  # a signal takes microseconds to arrive
        while time.monotonic() < deadline:
            assert alive(job)
    finally:
        end(job.pid)
