"""A container's pids from its control group: both cgroup versions, both of Docker's drivers."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanectl.engine.docker_pids import cgroup_pids

ID = "066a70637b8e3d4a86efcee7f6193e60e98c674543fad5eb17bc532f64182792"


def machine(root: Path, line: str, groups: dict[str, str]) -> frozenset[int] | None:
    """Lay out /proc/7/cgroup with this line and the groups {folder: pids}; return what is found for pid 7."""
    process = root / "proc" / "7"
    process.mkdir(parents=True)
    (process / "cgroup").write_text(f"5:devices:/elsewhere\n{line}\n")
    for folder, pids in groups.items():
        group = root / "cgroup" / folder
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.procs").write_text(pids)
    return cgroup_pids(7, ID, root / "cgroup", root / "proc")


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        (f"0::/system.slice/docker-{ID}.scope", f"system.slice/docker-{ID}.scope"),  # v2, systemd
        (f"0::/docker/{ID}", f"docker/{ID}"),  # v2, cgroupfs
        (f"4:memory:/docker/{ID}", f"memory/docker/{ID}"),  # v1
        (f"9:name=systemd:/docker/{ID}", f"systemd/docker/{ID}"),  # v1, a hierarchy without controllers
        (f"0::/machine.slice/libpod-{ID}.scope", f"machine.slice/libpod-{ID}.scope"),  # Podman
    ],
)
def test_processes_of_the_group_and_of_those_below(tmp_path: Path, line: str, folder: str) -> None:
    assert machine(tmp_path, line, {folder: "7\n8\n", f"{folder}/inner": "9\n"}) == {7, 8, 9}


def test_a_pid_of_somebody_else_is_not_ours(tmp_path: Path) -> None:
    assert machine(tmp_path, "0::/docker/" + "f" * 64, {"docker/" + "f" * 64: "7\n"}) is None


def test_cannot_tell_when_the_process_or_its_group_is_not_here(tmp_path: Path) -> None:
    assert machine(tmp_path, f"0::/docker/{ID}", {}) is None
    assert cgroup_pids(8, ID, tmp_path / "cgroup", tmp_path / "proc") is None
