"""Whether the machine is on its way down."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SYSTEMD_RUNS = Path("/run/systemd/system")  # sd_booted(3): this directory exists where systemd is the init system
ANSWER_WITHIN_S = 2.0  # systemd answers in some 10 ms; who asks has a trip to record


def shutting_down() -> bool:
    """True when systemd says that it stops everything; False where it does not run, or does not answer in time.

    Source: systemctl(1), is-system-running: "stopping".
    """
    systemctl = shutil.which("systemctl") if SYSTEMD_RUNS.is_dir() else None
    if systemctl is None:
        return False
    try:
        asked = subprocess.run(
            [systemctl, "is-system-running"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.stdout.strip() == "stopping"
