"""Docker's inspect answers become containers, and create arguments that make the same container again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.core.container import Container, Status
from lanectl.core.lane import Restart
from lanectl.engine import facts
from lanectl.errors import EngineError

ID = "066a70637b8e3d4a86efcee7f6193e60e98c674543fad5eb17bc532f64182792"
IMAGE = "sha256:1a2b1255a3ef10df288ac104755e8f7d75c0df86705d641ce371896e6d20a905"
GB300 = "GPU-aaaaaaaa-0000-4000-8000-000000000300"
RTX = "GPU-bbbbbbbb-0000-4000-8000-000000006000"


def inspect(
    *,
    state: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    host: dict[str, Any] | None = None,
    **top: Any,
) -> dict[str, Any]:
    """An answer of Engine 28.5 (API 1.51), shortened to what is read, with the given changes."""
    base_state = {
        "Status": "running",
        "Running": True,
        "OOMKilled": False,
        "Pid": 4711,
        "ExitCode": 0,
        "Error": "",
        "StartedAt": "2026-11-29T13:04:26.443119271Z",
        "FinishedAt": "0001-01-01T00:00:00Z",
    }
    base_config = {
        "Hostname": ID[:12],
        "Env": ["A=1"],
        "Cmd": ["serve"],
        "Image": "repo/vllm@sha256:" + "1" * 64,
        "Entrypoint": None,
        "Labels": {"lanectl.lane": "v25"},
        "Tty": False,
    }
    base_host = {
        "Binds": ["/models:/model:ro"],
        "NetworkMode": "host",
        "RestartPolicy": {"Name": "unless-stopped", "MaximumRetryCount": 0},
        "AutoRemove": False,
        "Runtime": "runc",
        "DeviceRequests": None,
        "Mounts": None,
    }
    return {
        "Id": ID,
        "Created": "2026-11-29T13:04:26.383597389Z",
        "Name": "/dsv41",
        "Image": IMAGE,
        "RestartCount": 0,
        "Mounts": [],
        "State": {**base_state, **(state or {})},
        "Config": {**base_config, **(config or {})},
        "HostConfig": {**base_host, **(host or {})},
        "NetworkSettings": {"Networks": {"host": {"Aliases": None}}},
        **top,
    }


def test_a_running_container() -> None:
    assert facts.container(inspect()) == Container(
        id=ID,
        name="dsv41",
        image_id=IMAGE,
        image_ref="repo/vllm@sha256:" + "1" * 64,
        status=Status.RUNNING,
        created_at="2026-11-29T13:04:26.383597389Z",
        started_at="2026-11-29T13:04:26.443119271Z",
        restart=Restart("unless-stopped"),
        labels={"lanectl.lane": "v25"},
        pid=4711,
        network_mode="host",
    )


@pytest.mark.parametrize(
    ("status", "code"), [("created", None), ("running", None), ("paused", None), ("exited", 137), ("dead", 137)]
)
def test_an_exit_code_only_where_it_ended(status: str, code: int | None) -> None:
    assert facts.container(inspect(state={"Status": status, "ExitCode": 137})).exit_code == code


def test_T04_restart_back_off_says_running_and_is_not() -> None:
    state = {"Status": "restarting", "Running": True, "Restarting": True, "ExitCode": 1, "Pid": 0}
    container = facts.container(inspect(state=state, RestartCount=35))
    assert (container.running, container.active) == (False, True)
    assert (container.exit_code, container.restart_count, container.pid) == (1, 35, None)


@pytest.mark.parametrize("said", [True, False])
def test_T27_out_of_memory_is_what_the_engine_says_not_137(said: bool) -> None:
    state = {"Status": "exited", "ExitCode": 137, "OOMKilled": said}
    assert facts.container(inspect(state=state)).oom_killed is said


def test_a_status_nobody_knows_is_an_error_not_a_guess() -> None:
    with pytest.raises(EngineError, match="hibernating"):
        facts.container(inspect(state={"Status": "hibernating"}))


def test_health_is_a_hint_or_absent() -> None:
    assert facts.container(inspect()).health is None
    assert facts.container(inspect(state={"Health": {"Status": "unhealthy"}})).health == "unhealthy"


CDI = {"Driver": "cdi", "Count": 0, "DeviceIDs": [f"nvidia.com/gpu={RTX}"], "Capabilities": None, "Options": None}
GPUS = {"Driver": "", "Count": 0, "DeviceIDs": [GB300], "Capabilities": [["gpu"]], "Options": {}}
ALL = {"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}
OTHER = {"Driver": "", "Count": 1, "DeviceIDs": None, "Capabilities": [["tpu"]], "Options": {}}


@pytest.mark.parametrize(
    ("host", "env", "devices"),
    [
        ({}, [], ()),
        ({"DeviceRequests": [CDI]}, [], (f"nvidia.com/gpu={RTX}",)),
        ({"DeviceRequests": [GPUS]}, [], (f"nvidia.com/gpu={GB300}",)),  # --gpus '"device=GPU-…"'
        ({"DeviceRequests": [CDI, GPUS]}, [], (f"nvidia.com/gpu={RTX}", f"nvidia.com/gpu={GB300}")),
        ({"DeviceRequests": [ALL]}, [], ("nvidia.com/gpu=all",)),
        ({"DeviceRequests": [OTHER]}, [], ()),
        (
            {"Runtime": "nvidia"},
            [f"NVIDIA_VISIBLE_DEVICES={GB300},{RTX}"],
            (f"nvidia.com/gpu={GB300}", f"nvidia.com/gpu={RTX}"),
        ),
        ({"Runtime": "nvidia"}, ["NVIDIA_VISIBLE_DEVICES=void"], ()),
        ({"Runtime": "nvidia"}, [], ()),
        ({"Runtime": "runc"}, ["NVIDIA_VISIBLE_DEVICES=all"], ()),  # an image's own variable, without the hook
    ],
)
def test_T31_T40_gpus_are_seen_whichever_way_they_were_given(
    host: dict[str, Any], env: list[str], devices: tuple[str, ...]
) -> None:
    assert facts.container(inspect(host=host, config={"Env": env})).devices == devices


class TestCdiDevices:
    def test_the_names_the_daemon_lists_whatever_its_folders(self) -> None:
        devices = [{"Source": "cdi", "ID": f"nvidia.com/gpu={RTX}"}, {"Source": "other", "ID": "x"}]
        said = {"CDISpecDirs": [], "DiscoveredDevices": devices}
        assert facts.cdi_devices(said, (1, 51)) == (f"nvidia.com/gpu={RTX}",)

    def test_none_listed_is_none_known(self) -> None:
        assert facts.cdi_devices({}, (1, 51)) == ()

    def test_an_older_daemon_cannot_tell(self) -> None:
        assert facts.cdi_devices({}, (1, 49)) is None


class TestLogSince:
    @pytest.mark.parametrize(
        ("started_at", "since"),
        [
            ("1970-01-01T00:00:01.000000001Z", "1.000000001"),
            ("2026-11-29T13:04:26.443119271Z", "1795957466.443119271"),
            ("2026-11-29T13:04:26.5Z", "1795957466.500000000"),
            ("2026-11-29T13:04:26Z", "1795957466.000000000"),
            ("", "0"),
        ],
    )
    def test_to_the_nanosecond(self, started_at: str, since: str) -> None:
        assert facts.log_since(started_at) == since

    @given(st.datetimes(), st.integers(min_value=0, max_value=999_999_999))
    def test_it_keeps_every_digit(self, moment: Any, nanoseconds: int) -> None:
        text = f"{moment:%m-%dT%H:%M:%S}.{nanoseconds:09d}".rstrip("0").rstrip(".")
        assert facts.log_since(f"2026-{text}Z".replace("-02-29", "-02-28")).endswith(f".{nanoseconds:09d}")


class TestRecreate:
    def body(self, **changes: Any) -> dict[str, Any]:
        return dict(facts.recreate(inspect(**changes)).body)

    def test_name_image_by_id_and_everything_asked_for(self) -> None:
        args = facts.recreate(inspect())
        assert args.name == "dsv41"
        assert args.body["Image"] == IMAGE
        assert args.body["Env"] == ["A=1"]
        assert args.body["Cmd"] == ["serve"]
        assert args.body["Labels"] == {"lanectl.lane": "v25"}
        assert args.body["HostConfig"]["Binds"] == ["/models:/model:ro"]
        assert args.body["HostConfig"]["RestartPolicy"] == {"Name": "unless-stopped", "MaximumRetryCount": 0}

    def test_the_default_host_name_is_not_kept_a_chosen_one_is(self) -> None:
        assert "Hostname" not in self.body()
        assert self.body(config={"Hostname": "station"})["Hostname"] == "station"
        assert "Hostname" not in self.body(config={"Hostname": "x"}, host={"NetworkMode": "container:abc"})

    def test_T22_auto_remove_is_never_asked_for(self) -> None:
        assert self.body(host={"AutoRemove": True})["HostConfig"]["AutoRemove"] is False

    def test_an_emptied_entrypoint_stays_empty(self) -> None:
        assert self.body()["Entrypoint"] == [""]
        assert self.body(config={"Entrypoint": ["vllm"]})["Entrypoint"] == ["vllm"]

    def test_anonymous_volumes_come_along_by_name_and_once(self) -> None:
        mounts = [
            {"Type": "bind", "Source": "/models", "Destination": "/model", "RW": False},
            {"Type": "volume", "Name": "v1", "Destination": "/cache", "RW": True},
            {"Type": "volume", "Name": "v2", "Destination": "/fixed", "RW": False},
        ]
        host = self.body(Mounts=mounts)["HostConfig"]
        assert host["Binds"] == ["/models:/model:ro", "v1:/cache", "v2:/fixed:ro"]
        again = self.body(Mounts=mounts, host={"Binds": host["Binds"]})["HostConfig"]
        assert again["Binds"] == host["Binds"]

    def test_user_networks_keep_what_was_asked_not_what_was_assigned(self) -> None:
        network = {
            "IPAMConfig": {"IPv4Address": "172.20.0.9"},
            "Links": None,
            "Aliases": ["server", ID[:12]],
            "MacAddress": "02:42:ac:14:00:09",
            "IPAddress": "172.20.0.9",
            "NetworkID": "n1",
        }
        settings = {"Networks": {"lanes": network, "bridge": {"Aliases": None, "IPAddress": "172.17.0.2"}}}
        body = self.body(NetworkSettings=settings, host={"NetworkMode": "lanes"})
        asked = {"IPAMConfig": {"IPv4Address": "172.20.0.9"}, "Aliases": ["server"]}
        assert body["NetworkingConfig"] == {"EndpointsConfig": {"lanes": asked}}

    def test_built_in_networks_take_no_settings(self) -> None:
        assert "NetworkingConfig" not in self.body()

    def test_the_answer_itself_is_not_changed(self) -> None:
        given_answer = inspect()
        facts.recreate(given_answer)
        assert given_answer == inspect()
