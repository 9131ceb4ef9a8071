"""A lane runs on the local engine if and only if it asks for nothing a process on this host does not have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lanectl.core.lane import (
    Device,
    Lane,
    Logging,
    MapRef,
    Mount,
    PortMap,
    Ready,
    Restart,
    Service,
    Tmpfs,
    Ulimit,
)
from lanectl.site.local_rules import local_problems

GOOD = Service(
    name="server",
    container_name="c",
    image="env:/srv/x@sha256:" + "0" * 64,
    entrypoint=("python",),
    network_mode="host",
    ipc="host",
    mounts=(Mount("/srv/x", "/srv/x", True),),
    devices=(Device("nvidia.com/gpu=GPU-1"),),
    ready=Ready(models=True),
    init=True,
)


def lane(service: Service, **other: object) -> Lane:
    return replace(Lane("l", None, "", "m", None, "127.0.0.1", 1, (service,)), **other)  # type: ignore[arg-type]


def test_a_lane_of_the_hosts_own_things_runs() -> None:
    assert local_problems(lane(GOOD)) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("network_mode", None),
        ("network_mode", "bridge"),
        ("ipc", None),
        ("ipc", "private"),
        ("entrypoint", None),
        ("restart", Restart("always")),
        ("ports", (PortMap(1, 1),)),
        ("ulimits", (Ulimit("memlock", -1, -1),)),
        ("cap_add", ("IPC_LOCK",)),
        ("security_opt", ("label=disable",)),
        ("shm_size", 5),
        ("tmpfs", (Tmpfs("/tmp"),)),
        ("logging", Logging("journald", ())),
    ],
)
def test_what_it_cannot_honour_is_refused_by_key(key: str, value: object) -> None:
    (problem,) = local_problems(lane(replace(GOOD, **{key: value})))  # type: ignore[arg-type]
    assert problem.where == "lanes/l.yaml"
    assert problem.path == f"services.server.{key}"
    assert problem.hint


def test_a_mount_must_be_identity() -> None:
    (problem,) = local_problems(lane(replace(GOOD, mounts=(Mount("/srv/x", "/x"),))))
    assert problem.path == "services.server.volumes"
    assert "/srv/x" in problem.message


def test_the_map_must_be_seen_where_it_is() -> None:
    moved = MapRef("/site/maps/m.json", "/lane/m.json", ("server",))
    (problem,) = local_problems(lane(GOOD, map=moved))
    assert (problem.path, problem.hint) == ("map.mount", "mount: /site/maps/m.json")
    assert local_problems(lane(GOOD, map=replace(moved, mount=moved.file))) == []
    assert local_problems(lane(GOOD, map=replace(moved, services=()))) == []


def test_everything_is_said_at_once() -> None:
    bare = Service(name="server", container_name="c", image="x", shm_size=1)
    assert [problem.path.rpartition(".")[2] for problem in local_problems(lane(bare))] == [
        "network_mode",
        "ipc",
        "entrypoint",
        "shm_size",
    ]
