"""A service becomes the create body that makes its container, and the same as `docker run` and as Compose."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.core.container import CreateArgs
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
)
from lanectl.engine.create import compose, create_args, docker_run, mounts_of
from lanectl.site.load import load_lane
from tests.support.site_dir import LANE, REPOSITORY, STATION, site_with

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
IMAGE = "sha256:" + "0" * 64
BARE = Service(name="server", container_name="c", image=IMAGE, ready=Ready(models=True))


def lane(*services: Service, map_file: MapRef | None = None) -> Lane:
    return Lane("l", None, "", "m", None, "127.0.0.1", 1, services, map=map_file)


@pytest.fixture
def reference(tmp_path: Path) -> tuple[Lane, str]:
    """The lane with every key there is, and the path of its site (which the golden files do not know)."""
    text = (REPOSITORY / "lanectl/site/reference.yaml").read_text()
    station = STATION.replace("args: {", "args: {dsv41_extra: [-x, 'a b', c$d], ")
    station = station.replace("images: {", f"images: {{dsv41: '{IMAGE}', ").replace(
        "paths: {", "paths: {b12x: /srv/b12x, "
    )
    (tmp_path / "sidecar.env").write_text("FROM_FILE=1\n")
    (tmp_path / "sidecar.env").chmod(0o600)
    site = site_with(tmp_path, station, reference=text, v23=LANE.replace("lane: small", "lane: v23"))
    return load_lane(site, "reference", public=True), str(tmp_path)


def golden(name: str, value: object, site: str) -> None:
    """Compare with a golden file. LANECTL_WRITE_GOLDEN=1 writes it anew: read the difference before you commit it."""
    text = json.dumps(value, indent=1).replace(site, "/SITE") + "\n"
    if os.environ.get("LANECTL_WRITE_GOLDEN") == "1":
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text(), text


def args_of(lane: Lane) -> list[CreateArgs]:
    labels = {"lanectl.lane": lane.label}
    return [create_args(lane, service, name=f"{service.container_name}.x", labels=labels) for service in lane.services]


def test_the_create_bodies_of_the_reference_lane(reference: tuple[Lane, str]) -> None:
    golden("reference_bodies.json", {args.name: args.body for args in args_of(reference[0])}, reference[1])


def test_the_docker_run_words_of_the_reference_lane(reference: tuple[Lane, str]) -> None:
    golden("reference_docker_run.json", [docker_run(args) for args in args_of(reference[0])], reference[1])


def test_the_compose_file_of_the_reference_lane(reference: tuple[Lane, str]) -> None:
    golden("reference_compose.json", compose(reference[0]), reference[1])


def test_a_bare_service_says_only_what_must_be_said() -> None:
    assert create_args(lane(BARE), BARE, name="n", labels={"a": "b"}) == CreateArgs(
        "n",
        {
            "Image": IMAGE,
            "Env": [],
            "Labels": {"a": "b"},
            "StopTimeout": 30,
            "HostConfig": {
                "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
                "LogConfig": {"Type": "json-file", "Config": {"max-file": "3", "max-size": "64m"}},
                "AutoRemove": False,
            },
        },
    )


def test_a_candidate_is_never_restarted_by_the_daemon_whatever_its_spec_says() -> None:
    service = replace(BARE, restart=Restart("always"))
    body = create_args(lane(service), service, name="n", labels={}).body
    assert body["HostConfig"]["RestartPolicy"]["Name"] == "no"
    kept = create_args(lane(service), service, name="n", labels={}, restart=Restart("on-failure", 3)).body
    assert kept["HostConfig"]["RestartPolicy"] == {"Name": "on-failure", "MaximumRetryCount": 3}
    assert "--restart" in docker_run(CreateArgs("n", kept))
    assert "on-failure:3" in docker_run(CreateArgs("n", kept))


def test_a_grace_is_rounded_up_to_whole_seconds() -> None:
    service = replace(BARE, stop_grace_s=1.2)
    assert create_args(lane(service), service, name="n", labels={}).body["StopTimeout"] == 2
    assert compose(lane(service))["services"]["server"]["stop_grace_period"] == "1.2s"


def test_cdi_devices_are_one_request_without_count_or_options() -> None:
    service = replace(BARE, devices=(Device("nvidia.com/gpu=GPU-1"), Device("nvidia.com/gpu=GPU-2")))
    args = create_args(lane(service), service, name="n", labels={})
    names = ["nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"]
    assert args.body["HostConfig"]["DeviceRequests"] == [{"Driver": "cdi", "DeviceIDs": names}]
    words = docker_run(args)
    assert [words[index + 1] for index, word in enumerate(words) if word == "--device"] == names
    assert compose(lane(service))["services"]["server"]["devices"] == names


def test_the_map_is_bound_read_only_into_the_services_that_name_it_alone() -> None:
    other = replace(BARE, name="other", ready=None, mounts=(Mount("/a", "/a"),))
    bound = lane(other, BARE, map_file=MapRef("/site/m.json", "/lane/m.json", ("server",)))
    assert mounts_of(bound, bound.services[0]) == (Mount("/a", "/a"),)
    assert mounts_of(bound, bound.services[1]) == (Mount("/site/m.json", "/lane/m.json", True),)
    volumes = compose(bound)["services"]["server"]["volumes"]
    assert volumes == [{"type": "bind", "source": "/site/m.json", "target": "/lane/m.json", "read_only": True}]


def test_published_ports_bind_where_they_say() -> None:
    ports = (PortMap(80, 8080), PortMap(80, 8081, "::1"), PortMap(53, 53, "0.0.0.0", "udp"))
    service = replace(BARE, ports=ports)
    args = create_args(lane(service), service, name="n", labels={})
    assert args.body["ExposedPorts"] == {"80/tcp": {}, "53/udp": {}}
    assert args.body["HostConfig"]["PortBindings"] == {
        "80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}, {"HostIp": "::1", "HostPort": "8081"}],
        "53/udp": [{"HostIp": "0.0.0.0", "HostPort": "53"}],
    }
    words = docker_run(args)
    published = [words[index + 1] for index, word in enumerate(words) if word == "--publish"]
    assert published == ["127.0.0.1:8080:80/tcp", "[::1]:8081:80/tcp", "0.0.0.0:53:53/udp"]
    assert compose(lane(service))["services"]["server"]["ports"] == published


def test_a_mount_with_a_comma_is_one_csv_field() -> None:
    service = replace(BARE, mounts=(Mount("/a,b", '/c"d', True),))
    words = docker_run(create_args(lane(service), service, name="n", labels={}))
    assert words[words.index("--mount") + 1] == 'type=bind,"source=/a,b","target=/c""d",readonly'


def test_secrets_stay_references_and_reach_no_compose_file() -> None:
    environment = (
        ("PURE", "${secrets.hf}"),
        ("MIXED", "Bearer ${secrets.hf} $5"),
        ("FILED", "${env_file:/s/e:FILED}"),
        ("COST", "$5"),
    )
    service = replace(BARE, environment=environment, env_files=("/s/e",))
    args = create_args(lane(service), service, name="n", labels={})
    assert args.body["Env"] == [f"{key}={value}" for key, value in environment]
    written = compose(lane(service))["services"]["server"]
    assert written["env_file"] == ["/s/e"]
    assert written["environment"] == {"PURE": None, "MIXED": "Bearer ${hf} $$5", "COST": "$$5"}
    words = docker_run(args)
    assert words[words.index("--env-file") + 1] == "/s/e"
    assert "PURE=${secrets.hf}" in words
    assert not any(word.startswith("FILED=") for word in words)


def test_compose_takes_every_dollar_literally() -> None:
    service = replace(BARE, command=("a$b", "${x}"), entrypoint=("$e",), mounts=(Mount("/a$", "/b$"),), user="$u")
    written = compose(lane(service))["services"]["server"]
    assert written["command"] == ["a$$b", "$${x}"]
    assert (written["entrypoint"], written["user"]) == (["$$e"], "$$u")
    assert (written["volumes"][0]["source"], written["volumes"][0]["target"]) == ("/a$$", "/b$$")
    assert create_args(lane(service), service, name="n", labels={}).body["Cmd"] == ["a$b", "${x}"]


def test_docker_run_puts_the_rest_of_the_entrypoint_before_the_command() -> None:
    service = replace(BARE, entrypoint=("numactl", "--membind=0"), command=("vllm", "serve"))
    words = docker_run(create_args(lane(service), service, name="n", labels={}))
    assert words[-6:] == ["--entrypoint", "numactl", IMAGE, "--membind=0", "vllm", "serve"]
    assert words[:7] == ["docker", "run", "--detach", "--pull", "never", "--name", "n"]


def test_a_driver_without_options_gets_none() -> None:
    service = replace(BARE, logging=Logging("journald", ()))
    assert "--log-opt" not in docker_run(create_args(lane(service), service, name="n", labels={}))
    assert compose(lane(service))["services"]["server"]["logging"] == {"driver": "journald", "options": {}}


def test_the_same_lane_makes_the_same_body_twice(reference: tuple[Lane, str]) -> None:
    first, second = (json.dumps([args.body for args in args_of(reference[0])]) for _ in range(2))
    assert first == second
