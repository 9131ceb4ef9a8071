"""What is worth knowing before a swap and stops nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lanectl.actions.case import Case
from lanectl.actions.watchdog import Watchdog
from lanectl.errors import Problem
from lanectl.store.process import command_lines

# Programs that are known to act on lanes by themselves: they would start or kill containers in the middle of a swap.
FOREIGN_CONTROLLERS = ("sidecar_watchdog.py", "controller.py", "promote-v19", "swap-to-m3v2.sh")
LOGIND = Path("/run/systemd/system")  # sd_booted(3)
LOGIND_CONF = Path("/etc/systemd/logind.conf")
LAST_SYSTEM_UID = 999  # logind never removes the IPC objects of system users (source: logind.conf(5), RemoveIPC)


def foreign_controllers(case: Case) -> Iterator[Problem]:
    """A hand-run watchdog with --rollback would start another lane in the middle of a swap."""
    for pid, line in command_lines():
        named = next((name for name in FOREIGN_CONTROLLERS if name in line), None)
        if named and pid != os.getpid():
            yield Problem(
                f"process {pid}",
                f"{named} is running and may act on these containers",
                hint="end it before the swap if it watches this lane",
            )


def remove_ipc(case: Case) -> Iterator[Problem]:
    """RemoveIPC deletes a user's shared memory at logout (source: logind.conf(5)), a lane's counters with it."""
    shares = case.lane.shm or any(service.ipc == "host" for service in case.lane.services)
    if not shares or os.geteuid() <= LAST_SYSTEM_UID or not LOGIND.is_dir() or _keeps_ipc():
        return
    yield Problem(
        "logind",
        "RemoveIPC is not off: logging out may delete the shared memory of a lane with host IPC",
        hint="set RemoveIPC=no in /etc/systemd/logind.conf, or run the swap with --detach from a system user",
    )


def _keeps_ipc() -> bool:
    files = [LOGIND_CONF, *sorted(LOGIND_CONF.parent.glob("logind.conf.d/*.conf"))]
    lines = [line.strip().lower() for file in files if file.is_file() for line in file.read_text().splitlines()]
    said = [line.partition("=")[2].strip() for line in lines if line.startswith("removeipc")]
    return bool(said) and said[-1] in ("no", "false", "0", "off")


def unarmed(case: Case) -> Iterator[Problem]:
    """Production that asks for a watchdog and has none that looks serves unprotected until it is stopped."""
    if case.owed is None or case.owed.watchdog is None or case.from_dark:
        return
    seen = Watchdog.read(case.station.state, case.owed.server.container_id)
    if seen is None or not seen.armed:
        why = seen.why if seen is not None else "it was never armed"
        hint = f"`lanectl watch {case.owed.label}` arms it"
        yield Problem("watchdog", f"the watchdog of production does not look: {why}", hint=hint)
