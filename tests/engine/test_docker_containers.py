"""What only a real Docker engine can show: recreated containers, devices inside, memory limits, digests, terminals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import docker
import pytest

from lanectl.core.container import Container, CreateArgs, Status
from lanectl.core.lane import Restart
from lanectl.engine.docker import DockerEngine
from lanectl.errors import DeviceUnknown, EngineError, NotThere
from tests.support.docker_engine import DockerEngine as RealEngine
from tests.support.engine_api import call
from tests.support.engine_cdi import GPUS, NODES
from tests.support.engine_images import LABEL
from tests.support.poll import until
from tests.support.tiny_registry import tiny_registry

SOON_S = 30.0
GRACE_S = 10.0
# The first process of a container ignores what it has not asked for: only once it has said `ready` does TERM end it.
SLEEP = "trap 'exit 0' TERM; echo ready; while :; do sleep 1 & wait $!; done"


class Real:
    """The engine under test, and ways past it to see what the daemon itself says."""

    def __init__(self, real: RealEngine, prefix: str) -> None:
        self.engine = DockerEngine(real.url, real.daemon_id)
        self.url = real.url
        self.image = real.images["busybox"]
        self.prefix = prefix

    def create(self, script: str, name: str = "a", host: dict[str, Any] | None = None, **body: Any) -> str:
        body = {"Entrypoint": ["/bin/sh", "-c"], "Cmd": [script], "Image": self.image, "Labels": {LABEL: "a"}, **body}
        return self.engine.create(
            CreateArgs(self.prefix + name, {**body, "HostConfig": host or {"NetworkMode": "none"}})
        )

    def run(self, script: str, name: str = "a", host: dict[str, Any] | None = None, **body: Any) -> str:
        container_id = self.create(script, name, host, **body)
        self.engine.start(container_id)
        return container_id

    def ended(self, container_id: str) -> Container:
        def look() -> Container | None:
            container = self.engine.inspect(container_id)
            assert container is not None
            return None if container.active else container

        ended = until(look, SOON_S, "the container ended")
        assert ended is not None
        return ended

    def raw(self, ref: str) -> Any:
        return call(self.url, "GET", f"/containers/{ref}/json")


@pytest.fixture
def real(docker_engine: RealEngine, container_prefix: str) -> Real:
    return Real(docker_engine, container_prefix)


def rich_body(folder: Path) -> dict[str, Any]:
    """Every kind of setting that a lane, or a person's `docker run`, may use."""
    return {
        "Env": ["A=1", "B=two words", "EMPTY="],
        "Labels": {LABEL: "rich", "lanectl.lane": "v25"},
        "User": "0:0",
        "WorkingDir": "/tmp",
        "StopSignal": "SIGINT",
        "StopTimeout": 7,
        "Healthcheck": {"Test": ["CMD", "true"], "Interval": 60_000_000_000},
    }


def rich_host(folder: Path) -> dict[str, Any]:
    return {
        "Binds": [f"{folder}:/data:ro"],
        "Mounts": [{"Type": "bind", "Source": str(folder), "Target": "/other", "ReadOnly": True}],
        "Tmpfs": {"/scratch": "size=1m"},
        "CapAdd": ["IPC_LOCK", "SYS_NICE"],
        "SecurityOpt": ["label=disable"],
        "Ulimits": [{"Name": "nofile", "Soft": 1024, "Hard": 2048}],
        "ShmSize": 8 * 1024 * 1024,
        "Init": False,
        "Devices": [{"PathOnHost": "/dev/null", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}],
        "LogConfig": {"Type": "json-file", "Config": {"max-file": "3", "max-size": "64m"}},
        "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 2},
        "ExtraHosts": ["station:127.0.0.1"],
        "OomScoreAdj": 100,
        "PidsLimit": 50,
        "GroupAdd": ["5"],
    }


class TestRecreate:
    @pytest.mark.parametrize("network", ["host", "none", "bridge"])
    def test_a_container_with_every_kind_of_setting_is_made_again_equal(
        self, real: Real, tmp_path: Path, cdi_names: dict[str, str], network: str
    ) -> None:
        host = {**rich_host(tmp_path), "NetworkMode": network, "IpcMode": "host"}
        host["DeviceRequests"] = [{"Driver": "cdi", "DeviceIDs": [cdi_names["gb300"]]}]
        body = rich_body(tmp_path)
        if network == "bridge":
            body["ExposedPorts"] = {"30006/tcp": {}}
            host["PortBindings"] = {"30006/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}
        original = real.run(SLEEP, host=host, **body)  # what a daemon fills in at the start counts too
        before, args = real.raw(original), real.engine.recreate_args(original)
        real.engine.remove(original)

        made = real.engine.create(args)
        real.engine.start(made)
        after = real.raw(made)
        assert _settings(after) == _settings(before)
        assert real.engine.recreate_args(made) == args

    def test_a_user_networks_alias_is_kept_the_old_id_is_not(self, real: Real) -> None:
        network = f"{real.prefix}net"
        client = docker.APIClient(base_url=real.url)
        client.create_network(network)
        try:
            settings = {"EndpointsConfig": {network: {"Aliases": ["server"]}}}
            original = real.run(SLEEP, host={"NetworkMode": network}, NetworkingConfig=settings)
            args = real.engine.recreate_args(original)
            real.engine.remove(original)
            made = real.engine.create(args)
            assert real.raw(made)["NetworkSettings"]["Networks"][network]["Aliases"] == ["server"]
            assert real.engine.recreate_args(made) == args
            real.engine.remove(made)
        finally:
            client.remove_network(network)
            client.close()

    def test_an_emptied_entrypoint_does_not_become_the_images_again(self, real: Real) -> None:
        base = real.create("x", "base")
        changes = quote('ENTRYPOINT ["/bin/false"]')
        image = call(real.url, "POST", f"/commit?container={base}&changes={changes}")["Id"]
        try:
            original = real.create("", Image=image, Entrypoint=[""], Cmd=["/bin/sh", "-c", "exit 5"])
            args = real.engine.recreate_args(original)
            real.engine.remove(original)
            made = real.engine.create(args)
            real.engine.start(made)
            assert real.ended(made).exit_code == 5
            real.engine.remove(made)
        finally:
            call(real.url, "DELETE", f"/images/{image}")

    def test_an_anonymous_volume_comes_along_and_goes_with_its_last_container(self, real: Real) -> None:
        first = real.run("echo kept > /cache/file", Volumes={"/cache": {}})
        real.ended(first)
        (mount,) = real.raw(first)["Mounts"]
        args = real.engine.recreate_args(first)
        real.engine.rename(first, f"{real.prefix}a.parked")
        body = {**args.body, "Cmd": ["cat /cache/file"]}
        second = real.engine.create(CreateArgs(args.name, body))
        real.engine.start(second)
        assert list(real.engine.logs(second)) == ["kept"]
        real.engine.remove(second)
        real.engine.remove(first)
        with pytest.raises(OSError, match="404"):
            call(real.url, "GET", f"/volumes/{mount['Name']}")


class TestInside:
    def test_T31_the_device_and_its_uuid_are_really_inside(self, real: Real, cdi_names: dict[str, str]) -> None:
        host = {"NetworkMode": "none", "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [cdi_names["rtx"]]}]}
        container_id = real.run("ls /dev/nvidia*; echo $NVIDIA_VISIBLE_DEVICES", host=host)
        assert list(real.engine.logs(container_id)) == [NODES["rtx"], GPUS["rtx"]]

    def test_T32_without_a_request_there_is_no_device(self, real: Real, cdi_names: dict[str, str]) -> None:
        container_id = real.run('ls /dev | grep -c nvidia; echo "[$NVIDIA_VISIBLE_DEVICES]"')
        assert list(real.engine.logs(container_id)) == ["0", "[]"]

    def test_a_terminals_log_has_no_frames(self, real: Real) -> None:
        container_id = real.run("echo one; printf 'loading\\rserving\\n'; printf end", Tty=True)
        assert list(real.engine.logs(container_id)) == ["one", "loading", "serving", "end"]

    def test_T27_out_of_memory_when_the_engine_says_so(self, real: Real) -> None:
        limit = 16 * 1024 * 1024
        host = {"NetworkMode": "none", "Memory": limit, "MemorySwap": limit}
        container_id = real.run("exec tail /dev/zero", host=host)
        container = real.ended(container_id)
        assert (container.exit_code, container.oom_killed) == (137, True)

    def test_T22_one_that_removes_itself_has_stopped_and_is_gone(self, real: Real) -> None:
        container_id = real.run(SLEEP, host={"NetworkMode": "none", "AutoRemove": True})
        assert next(real.engine.logs(container_id)) == "ready"
        stopped = real.engine.stop(container_id, GRACE_S)
        assert stopped.how == "term"
        until(lambda: real.engine.inspect(container_id) is None, SOON_S, "it has removed itself")

    def test_its_own_stop_signal_is_used(self, real: Real) -> None:
        script = "trap 'exit 9' USR1; trap '' TERM; echo ready; while :; do sleep 1 & wait $!; done"
        container_id = real.run(script, StopSignal="SIGUSR1")
        assert next(real.engine.logs(container_id)) == "ready"
        stopped = real.engine.stop(container_id, GRACE_S)
        assert (stopped.how, stopped.exit_code) == ("term", 9)

    def test_a_frozen_one_is_stopped_too(self, real: Real) -> None:
        container_id = real.run(SLEEP)
        assert next(real.engine.logs(container_id)) == "ready"
        call(real.url, "POST", f"/containers/{container_id}/pause")
        stopped = real.engine.stop(container_id, GRACE_S)
        assert stopped.how in ("term", "kill")
        assert real.ended(container_id).status is Status.EXITED

    def test_a_program_that_is_not_there_is_an_error_in_the_engines_words(self, real: Real) -> None:
        container_id = real.create("", Entrypoint=["/no/such/program"])
        with pytest.raises(EngineError, match="/no/such/program") as caught:
            real.engine.start(container_id)
        assert not isinstance(caught.value, DeviceUnknown)


class TestImages:
    @pytest.fixture
    def pushed(self, real: Real) -> Iterator[str]:
        """`repo@sha256:…` of the busybox image as a registry knows it, its tag removed again."""
        with tiny_registry() as registry:
            repository = f"{registry}/lanes/busybox"
            real.engine.keep_image(real.image, f"{repository}:v1")
            client = docker.APIClient(base_url=real.url)
            said = client.push(repository, "v1", auth_config={"username": "u", "password": "p"})
            client.close()
            image = real.engine.image(real.image)
            assert image is not None
            digests = [digest for digest in image.digests if digest.startswith(f"{repository}@")]
            assert digests, said
            yield digests[0]
            real.engine.drop_image_tag(digests[0])
            real.engine.drop_image_tag(f"{repository}:v1")

    def test_T42_an_image_is_found_by_its_digest_and_made_a_container_of(self, real: Real, pushed: str) -> None:
        image = real.engine.image(pushed)
        assert image is not None
        assert image.id == real.image
        assert pushed in image.digests
        container_id = real.run("exit 0", Image=pushed)
        assert (real.ended(container_id).image_id, real.ended(container_id).image_ref) == (real.image, pushed)

    def test_T42_another_digest_of_the_same_repository_is_not_there(self, real: Real, pushed: str) -> None:
        repository = pushed.partition("@")[0]
        other = f"{repository}@sha256:{'0' * 64}"
        assert real.engine.image(other) is None
        with pytest.raises(NotThere):
            real.create("exit 0", Image=other)

    def test_T42_a_keep_tag_holds_an_image_that_lost_its_name(self, real: Real) -> None:
        base = real.create("x", "base")
        image_id = call(real.url, "POST", f"/commit?container={base}&repo={real.prefix}img&tag=v1")["Id"]
        keep = f"lanectl-keep:{real.prefix}keep"
        real.engine.keep_image(image_id, keep)
        real.engine.drop_image_tag(f"{real.prefix}img:v1")
        assert real.engine.image(image_id) is not None
        real.engine.drop_image_tag(keep)
        assert real.engine.image(image_id) is None

    def test_a_keep_tag_that_is_the_last_name_of_a_used_image_stays(self, real: Real) -> None:
        base = real.create("x", "base")
        image_id = call(real.url, "POST", f"/commit?container={base}")["Id"]
        keep = f"lanectl-keep:{real.prefix}used"
        real.engine.keep_image(image_id, keep)
        user = real.create("exit 0", Image=image_id)
        real.engine.drop_image_tag(keep)
        assert real.engine.image(keep) is not None
        real.engine.remove(user)
        real.engine.drop_image_tag(keep)
        assert real.engine.image(image_id) is None


def test_T40_parked_production_has_no_policy_and_its_own_one_comes_back(real: Real) -> None:
    policy = {"Name": "always", "MaximumRetryCount": 0}
    container_id = real.run(SLEEP, host={"NetworkMode": "none", "RestartPolicy": policy})
    real.engine.set_restart(container_id, Restart("no"))
    real.engine.stop(container_id, GRACE_S)
    real.engine.rename(container_id, f"{real.prefix}a.parked.s1")
    parked = real.engine.inspect(container_id)
    assert parked is not None
    assert (parked.restart, parked.active) == (Restart("no"), False)
    real.engine.rename(container_id, f"{real.prefix}a")
    real.engine.start(container_id)
    real.engine.set_restart(container_id, Restart("always"))
    back = real.engine.inspect(f"{real.prefix}a")
    assert back is not None
    assert (back.id, back.restart, back.running) == (container_id, Restart("always"), True)


def _settings(inspect: Any) -> Any:
    """Return what an inspect answer says was asked for, without what differs between any two containers."""
    config, host = dict(inspect["Config"]), dict(inspect["HostConfig"])
    if config["Hostname"] == inspect["Id"][:12]:
        del config["Hostname"]
    mounts = sorted(inspect["Mounts"], key=lambda mount: str(mount["Destination"]))
    networks = {name: settings["Aliases"] for name, settings in inspect["NetworkSettings"]["Networks"].items()}
    return config, host, mounts, networks, inspect["Name"], inspect["Image"], inspect["Path"], inspect["Args"]
