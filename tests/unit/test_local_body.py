"""What the local engine reads in a create body, and what it refuses by key."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.core.container import CreateArgs
from lanectl.core.lane import Lane, Service
from lanectl.engine.create import create_args
from lanectl.engine.local_body import DEFAULT_PATH, LocalSpec, environment, missing_paths, read_body
from lanectl.errors import Refused

HOST = {"NetworkMode": "host", "IpcMode": "host"}
BODY: dict[str, Any] = {"Image": "env:/e@sha256:" + "0" * 64, "Entrypoint": ["/bin/serve"], "HostConfig": HOST}
USERS = ("ana", "1000", "ana:1000", "1000:1000")


def read(body: dict[str, Any] | None = None, host: dict[str, Any] | None = None) -> LocalSpec:
    return read_body(CreateArgs("server", {**BODY, **(body or {}), "HostConfig": {**HOST, **(host or {})}}), USERS)


def refused(body: dict[str, Any] | None = None, host: dict[str, Any] | None = None) -> list[str]:
    with pytest.raises(Refused) as caught:
        read(body, host)
    assert all(problem.where == "container server" for problem in caught.value.problems)
    return [problem.path for problem in caught.value.problems]


def test_the_least_there_can_be() -> None:
    assert read() == LocalSpec(argv=("/bin/serve",), labels={}, log_max_size=64 * 1024**2, log_max_files=3)


def test_everything_there_can_be() -> None:
    spec = read(
        {
            "Cmd": ["--port", "30006"],
            "Env": ["A=1", "B=x=y", "EMPTY="],
            "WorkingDir": "/srv",
            "User": "1000:1000",
            "Labels": {"lanectl.lane": "v23"},
            "StopSignal": "SIGINT",
            "StopTimeout": 120,
            "AttachStdout": True,
        },
        {
            "Binds": ["/model:/model:ro", "/w:/w"],
            "Mounts": [{"Type": "bind", "Source": "/map", "Target": "/map", "ReadOnly": True}],
            "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=GPU-1"]}],
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "8k", "max-file": "2"}},
            "Init": True,
            "AutoRemove": False,
            "Ulimits": [],
            "ShmSize": 0,
            "Privileged": None,
        },
    )
    assert spec.argv == ("/bin/serve", "--port", "30006")
    assert spec.env == ("A=1", "B=x=y", "EMPTY=")
    assert (spec.cwd, spec.labels, spec.stop_signal) == ("/srv", {"lanectl.lane": "v23"}, signal.SIGINT)
    assert spec.sources == ("/model", "/w", "/map")
    assert spec.devices == ("nvidia.com/gpu=GPU-1",)
    assert (spec.log_max_size, spec.log_max_files) == (8192, 2)
    assert missing_paths(spec, lambda path: path == "/model") == (
        ("HostConfig.Mounts", "/w"),
        ("HostConfig.Mounts", "/map"),
        ("WorkingDir", "/srv"),
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("NetworkMode", "bridge"),
        ("NetworkMode", ""),
        ("IpcMode", "private"),
        ("Ulimits", [{"Name": "memlock", "Soft": -1, "Hard": -1}]),
        ("CapAdd", ["IPC_LOCK"]),
        ("ShmSize", 1),
        ("Tmpfs", {"/t": ""}),
        ("PortBindings", {"1/tcp": [{"HostPort": "1"}]}),
        ("SecurityOpt", ["label=disable"]),
        ("Privileged", True),
        ("AutoRemove", True),
        ("Memory", 1),
        ("RestartPolicy", {"Name": "always"}),
        ("LogConfig", {"Type": "journald"}),
        ("LogConfig", {"Config": {"max-size": "much"}}),
        ("LogConfig", {"Config": {"max-size": "0"}}),
        ("LogConfig", {"Config": {"max-file": "0"}}),
        ("LogConfig", {"Config": {"compress": "true"}}),
        ("DeviceRequests", [{"Driver": "nvidia", "Count": -1}]),
        ("Mounts", [{"Type": "tmpfs", "Target": "/t"}]),
    ],
)
def test_a_host_key_it_cannot_honour_is_named(key: str, value: Any) -> None:
    assert refused(host={key: value}) == [f"HostConfig.{key}"]


@pytest.mark.parametrize("bind", ["/a:/b", "/a:/b:ro", "data:/data", "a:a"])
def test_a_mount_that_is_not_identity_is_named(bind: str) -> None:
    assert refused(host={"Binds": [bind]}) == ["HostConfig.Binds"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Entrypoint", None),
        ("Entrypoint", []),
        ("Entrypoint", [""]),
        ("User", "somebody"),
        ("User", "1001"),
        ("StopSignal", "SIGNOTHING"),
        ("StopSignal", "9999"),
        ("Env", ["NO_VALUE"]),
        ("Env", ["=x"]),
        ("Hostname", "station"),
        ("Tty", True),
        ("Volumes", {"/v": {}}),
        ("ExposedPorts", {"1/tcp": {}}),
        ("NetworkingConfig", {"EndpointsConfig": {"n": {}}}),
    ],
)
def test_a_key_it_cannot_honour_is_named(key: str, value: Any) -> None:
    assert refused({key: value}) == [key]


def test_who_only_looks_is_not_compared_with_the_user() -> None:
    assert read_body(CreateArgs("server", {**BODY, "User": "somebody"})).argv == ("/bin/serve",)


@pytest.mark.parametrize("name", ["", "a", "../escape", "a/b", ".hidden", "-x", "a b", "a\n"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="is no container name"):
        read_body(CreateArgs(name, BODY), USERS)


def test_everything_wrong_is_told_at_once() -> None:
    found = refused(
        {"Entrypoint": None, "User": "x", "Tty": True}, {"NetworkMode": "bridge", "CapAdd": ["A"], "Binds": ["/a:/b"]}
    )
    assert sorted(found) == [
        "Entrypoint", "HostConfig.Binds", "HostConfig.CapAdd", "HostConfig.NetworkMode", "Tty", "User",
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "number"), [("SIGTERM", 15), ("INT", 2), ("sigusr1", 10), ("15", 15)])
def test_a_stop_signal_in_every_spelling(text: str, number: int) -> None:
    assert read({"StopSignal": text}).stop_signal == number


@pytest.mark.parametrize(
    ("text", "size"), [("8192", 8192), ("10b", 10), ("64k", 65536), ("64K", 65536), ("2mb", 2 << 20), ("1g", 1 << 30)]
)
def test_log_sizes_are_dockers(text: str, size: int) -> None:
    assert read(host={"LogConfig": {"Config": {"max-size": text}}}).log_max_size == size


def test_what_a_plain_lane_is_made_from_is_accepted() -> None:
    service = Service("server", "demo", "env:/e@sha256:00", ("/bin/serve",), ipc="host", network_mode="host")
    lane = Lane("demo", None, "", "m", None, "127.0.0.1", 1, (service,))
    spec = read_body(create_args(lane, service, name="demo", labels={"lanectl.lane": "demo"}), USERS)
    assert spec.argv == ("/bin/serve",)
    assert spec.labels == {"lanectl.lane": "demo"}


NAMES = st.text(st.characters(codec="ascii", exclude_characters="=\0"), min_size=1, max_size=8)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(env=st.lists(st.tuples(NAMES, VALUES), max_size=8), edits=st.lists(st.tuples(NAMES, VALUES), max_size=4))
def test_the_environment_is_base_then_body_then_devices_then_mark(
    env: list[tuple[str, str]], edits: list[tuple[str, str]]
) -> None:
    spec = read({"Env": [f"{name}={value}" for name, value in env]})
    pairs = [f"{name}={value}" for name, value in edits]
    made = environment(spec, container_id="c1", directory="/e", home="/home/ana", time_zone=None, edits=pairs)
    base = {"PATH": f"/e/bin:{DEFAULT_PATH}", "HOME": "/home/ana", "LANG": "C.UTF-8"}
    assert made == {**base, **dict(env), **dict(edits), "LANECTL_CONTAINER": "c1"}


def test_the_time_zone_is_the_machines_where_it_sets_one() -> None:
    made = environment(read(), container_id="c", directory="/e", home="/", time_zone="Asia/Tokyo", edits=())
    assert made["TZ"] == "Asia/Tokyo"
