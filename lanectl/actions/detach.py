"""`lanectl swap --detach`: the swap as a job of the Station, which no closed lid, lost line or logout can end."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lanectl.actions.attach import job_log
from lanectl.actions.station import Station
from lanectl.store.files import ensure_dir


def detach(station: Station, label: str, options: Sequence[str]) -> str:
    """Start `lanectl swap LABEL OPTIONS` as a detached job; return the swap's id, by which it can be followed.

    Raise `LaneError` when the job cannot be started.
    """
    swap = station.new_swap_id(label)
    log = job_log(station, swap)
    ensure_dir(log.parent)
    argv = [sys.executable, "-m", "lanectl", "--site", station.site.root, "swap", label, "--yes", "--id", swap]
    station.jobs.start([*argv, *options], name=f"lanectl-swap-{swap}", keep_fds=(), log_path=str(log))
    return swap
