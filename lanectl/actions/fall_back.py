"""The standing order `on_trip: fallback`: after a trip, one ordinary swap to the named lane, from dark.

Off by default: a trip starts nothing by itself. The swap is a job of its own and is recorded like any other.
"""

from __future__ import annotations

import sys

from lanectl.actions.station import Logger
from lanectl.errors import LaneError
from lanectl.ports import Jobs
from lanectl.store.files import ensure_dir
from lanectl.store.layout import StateDir
from lanectl.store.watch import WatchSpec


def fall_back(state: StateDir, spec: WatchSpec, jobs: Jobs, log: Logger) -> None:
    """Start the swap to the lane's fallback, if one is ordered. Never raises: the lane is dark and said so."""
    if spec.fallback is None:
        return
    argv = [sys.executable, "-m", "lanectl", "--site", str(state.root.parent), "swap", spec.fallback]
    argv += ["--keep", "--from-dark", "--yes"]
    try:
        ensure_dir(state.root / "jobs")
        log_path = state.root / "jobs" / f"fallback-{spec.services[0].container_id[:12]}.log"
        jobs.start(argv, name=f"lanectl-fallback-{spec.fallback}", keep_fds=(), log_path=str(log_path))
    except LaneError as error:
        log.error("the fallback lane was not started", lane=spec.fallback, error=error.message)
        return
    log.warning("the fallback lane is being swapped in", lane=spec.fallback, log=str(log_path))
