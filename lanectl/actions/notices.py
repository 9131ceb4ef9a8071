"""What is worth knowing before a swap and stops nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from lanectl.actions.case import Case
from lanectl.actions.station import Station
from lanectl.actions.watch_view import armed_by
from lanectl.actions.watchdog import Watchdog
from lanectl.core.owed import Owed
from lanectl.errors import Problem
from lanectl.store.process import command_lines

# Programs that are known to act on lanes by themselves: they would start or kill containers in the middle of a swap.
FOREIGN_CONTROLLERS = ("sidecar_watchdog.py", "controller.py", "promote-v19", "swap-to-m3v2.sh")
WATCHDOG = "watchdog"  # where a notice about the watchdog of production comes from
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
    found = _unarmed(case.station, case.owed)
    if found is not None:
        yield found


def still_true(station: Station, notices: Iterable[Problem]) -> tuple[Problem, ...]:
    """Given what was noticed before a swap, return what still holds: the way back arms the watchdog of what serves."""
    owed = station.production().owed
    now = _unarmed(station, owed) if owed is not None and owed.watchdog is not None else None
    seen = (now if notice.where == WATCHDOG else notice for notice in notices)
    return tuple(notice for notice in seen if notice is not None)


def _unarmed(station: Station, owed: Owed) -> Problem | None:
    seen = Watchdog.read(station.state, owed.server.container_id, owed.label)
    if seen is not None and seen.armed:
        return None
    why = seen.why if seen is not None else "it was never armed"
    return Problem(WATCHDOG, f"the watchdog of production does not look: {why}", hint=armed_by(owed.label))
