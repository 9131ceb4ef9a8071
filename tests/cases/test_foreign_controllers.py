"""A program that is known to act on lanes by itself is reported before a swap, by its command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lanectl.store.process import command_lines
from tests.support.fake_station import FakeSite
from tests.support.poll import until


def test_a_hand_run_watchdog_is_a_notice_and_refuses_nothing(tmp_path: Path) -> None:
    script = tmp_path / "sidecar_watchdog.py"
    script.write_text("import sys; sys.stdin.read()\n")
    site = FakeSite(tmp_path / "site")
    site.produce()
    site.lane("cand")
    with subprocess.Popen([sys.executable, str(script), "--rollback"], stdin=subprocess.PIPE) as watchdog:
        line = f"{sys.executable} {script} --rollback"
        until(lambda: (watchdog.pid, line) in command_lines(), 30.0, "the process has its own command line")
        ended = site.swap("cand")
        watchdog.communicate()
    assert ended.outcome == "proven"
    assert ended.report is not None
    assert [one for one in ended.report.notices if f"process {watchdog.pid}" in one and "sidecar_watchdog.py" in one]
