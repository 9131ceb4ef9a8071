"""The host pids of a container's processes, from its control group."""

from __future__ import annotations

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PROCESSES = Path("/proc")


def cgroup_pids(
    first_pid: int, container_id: str, cgroups: Path = CGROUPS, proc: Path = PROCESSES
) -> frozenset[int] | None:
    """Given a container's first process and id, return the pids in its control group and the groups below it.

    None when they cannot be read: the engine is not on this machine, or its processes are not visible here. The group's
    name has the container's id in it (Docker with either cgroup driver, Podman), which proves that the pid is not of
    another machine. Source: cgroups(7), /proc/PID/cgroup is lines of `hierarchy:controllers:path`.
    """
    try:
        lines = (proc / str(first_pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if container_id in path:
            folder = cgroups / controllers.removeprefix("name=") / path.lstrip("/")
            pids = _listed(folder)
            if pids:
                return pids
    return None


def _listed(folder: Path) -> frozenset[int]:
    found: set[int] = set()
    for listing in folder.rglob("cgroup.procs"):
        try:
            found.update(map(int, listing.read_text().split()))
        except (OSError, ValueError):
            continue  # a group that ended between the listing and the read
    return frozenset(found)
