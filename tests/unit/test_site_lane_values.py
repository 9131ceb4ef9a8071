"""A lane's text becomes exactly these values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lanectl.core.lane import (
    Completion,
    Device,
    Drain,
    Fact,
    GpuMemory,
    Lane,
    Logging,
    MapRef,
    Missing,
    Mount,
    PortMap,
    Ready,
    Restart,
    Service,
    Tmpfs,
    Ulimit,
    Watchdog,
)
from lanectl.site.load import lane_names, load_lane
from tests.support.site_dir import DIGEST, GB300, LANE, REPOSITORY, RTX, STATION, make_site, site_with

REFERENCE = (REPOSITORY / "lanectl/site/reference.yaml").read_text()
IMAGE = f"registry.example:5000/vllm@{DIGEST}"


@pytest.fixture
def reference(tmp_path: Path) -> Lane:
    """The reference file's lane on a station that gives all it asks for."""
    station = STATION.replace("images: {", f"images: {{dsv41: '{IMAGE}', ").replace(
        "args: {", "args: {dsv41_extra: [-x], "
    )
    station = station.replace("paths: {", "paths: {b12x: /srv/b12x, ")
    make_site(tmp_path, station, reference=REFERENCE, v23=LANE.replace("lane: small", "lane: v23"))
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps/rowmap-static-v1.json").write_text("{}")
    (tmp_path / "maps/MANIFEST.yaml").write_text(f"maps: {{rowmap-static-v1.json: {{sha256: {'12' * 32}}}}}")
    (tmp_path / "sidecar.env").write_text("FROM_FILE=1\nPYTHONPATH=/other\n")
    (tmp_path / "sidecar.env").chmod(0o600)
    site = site_with(tmp_path, station)
    return load_lane(site, "reference", public=False)


def test_the_reference_lane_is_complete(reference: Lane) -> None:
    assert reference.missing == ()
    assert reference.label == "reference"
    assert [service.name for service in reference.services] == ["sidecar", "server"]


def test_the_reference_lane_as_values(reference: Lane, tmp_path: Path) -> None:
    lane = replace(reference, services=(), sha256="")
    assert lane == Lane(
        name="reference",
        variant=None,
        summary="every key there is",
        served_model="some-model",
        max_model_len=1048576,
        host="127.0.0.1",
        port=30016,
        services=(),
        map=MapRef(f"{tmp_path}/maps/rowmap-static-v1.json", "/lane/rowmap.json", ("sidecar", "server"), "12" * 32),
        shm=("/dev/shm/vllm_peer_tier2",),
        watchdog=Watchdog("/dev/shm/vllm_peer_tier2", 2.0, "enforce", "dark", "server", "SPIN_LIMIT", 2000000000),
        drain=Drain(10.0, 300.0),
        drop_page_cache=True,
        requires=("map-cosine",),
        gates=("map-handshake", "byte-audit"),
        stable_for_s=0.0,
        measure_profile="general",
        fallback="v23",
    )


def test_the_reference_sidecar_as_values(reference: Lane, tmp_path: Path) -> None:
    assert reference.services[0] == Service(
        name="sidecar",
        container_name="some-sidecar",
        image=IMAGE,
        entrypoint=("bash", "-c"),
        command=("exec python3 /sc/sidecar.py --map /lane/rowmap.json",),
        environment=(("FROM_FILE", f"${{env_file:{tmp_path}/sidecar.env:FROM_FILE}}"), ("PYTHONPATH", "/b12x")),
        env_files=(f"{tmp_path}/sidecar.env",),
        mounts=(Mount("/srv/model", "/model", True), Mount("/srv/b12x", "/b12x", True)),
        devices=(Device(f"nvidia.com/gpu={RTX}"),),
        ipc="private",
        network_mode="bridge",
        ports=(PortMap(9000, 9000, "127.0.0.1", "tcp"),),
        ulimits=(Ulimit("memlock", -1, -1), Ulimit("nofile", 65536, 65536)),
        cap_add=("IPC_LOCK", "SYS_NICE"),
        security_opt=("label=disable",),
        shm_size=8 * 2**30,
        tmpfs=(Tmpfs("/tmp"), Tmpfs("/run", "size=64m")),
        user="1000:1000",
        working_dir="/sc",
        restart=Restart("no"),
        logging=Logging("json-file", (("max-file", "3"), ("max-size", "64m"))),
        stop_grace_s=30.0,
        stop_signal="SIGTERM",
        init=True,
        ready=Ready(log="^serving", timeout_s=600.0),
        memory=GpuMemory("rtx", RTX, 1024, 5.0, 120.0),
    )


def test_the_reference_server_as_values(reference: Lane) -> None:
    server = reference.services[1]
    assert server.depends_on == ("sidecar",)
    assert server.command == ("serve", "--host", "127.0.0.1", "--port", "30016", "-x")
    assert server.environment == (("SPIN_LIMIT", "2000000000"), ("HF_TOKEN", "${secrets.hf}"))
    assert server.ready == Ready(
        fatal=("EngineCore failed", "^Traceback"),
        timeout_s=1800.0,
        health="/health",
        health_status=200,
        models=True,
        completion=Completion(1, 60.0),
        api_key="${secrets.api}",
    )
    assert server.facts == (
        Fact("kv_tokens", r"GPU KV cache size: ([\d,]+) tokens", at_least=2400000.0, at_most=9000000.0),
        Fact("replay", "Decoder SWA bounded replay", required=True),
    )
    assert reference.server is server


def test_public_and_trial_differ_in_the_address_alone(tmp_path: Path) -> None:
    text = LANE + '    command: [--host, "${host}", --port, "${port}"]\n'
    site = site_with(tmp_path, "host: 0.0.0.0\n" + STATION, small=text)
    public, trial = (load_lane(site, "small", public=public) for public in (True, False))
    assert (public.host, public.port, trial.host, trial.port) == ("0.0.0.0", 30006, "127.0.0.1", 30016)
    assert public.server.command == ("--host", "0.0.0.0", "--port", "30006")
    assert trial.server.command == ("--host", "127.0.0.1", "--port", "30016")
    assert public.sha256 == trial.sha256
    assert len(public.sha256) == 64


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("container_name: small", "container_name: other"),
        lambda text: text + "max_model_len: 5\n",
        lambda text: text + "variants: {v: {}}\n",
        lambda text: text.replace("models: true", "health: /health"),
        lambda text: text + "    environment: {A: '${secrets.hf}'}\n",
    ],
)
def test_the_digest_follows_the_lane(tmp_path: Path, change: object) -> None:
    assert callable(change)
    before = load_lane(site_with(tmp_path / "a", small=LANE), "small", public=True).sha256
    label = "small@v" if "variants" in change(LANE) else "small"
    after = load_lane(site_with(tmp_path / "b", small=change(LANE)), label, public=True).sha256
    assert before != after


def test_the_digest_ignores_comments_quotes_and_where_the_site_is(tmp_path: Path) -> None:
    same = "# a comment\n" + LANE.replace("served_model: m", 'served_model: "m"')
    digests = {
        load_lane(site_with(tmp_path / folder, small=text), "small", public=True).sha256
        for folder, text in (("a", LANE), ("b", same))
    }
    assert len(digests) == 1


def test_what_a_service_has_when_it_says_nothing(tmp_path: Path) -> None:
    (service,) = load_lane(site_with(tmp_path, small=LANE), "small", public=True).services
    assert service == Service(name="server", container_name="small", image=IMAGE, ready=Ready(models=True))


@pytest.mark.parametrize(
    ("extra", "key", "value"),
    [
        ("command: vllm serve 'a b' ${port}", "command", ("vllm", "serve", "a b", "30006")),
        ('command: ["*${args.extra}", "*${args.none}", end]', "command", ("--flag", "a b", "end")),
        ("command: [a$$b, '$${port}', $$]", "command", ("a$b", "${port}", "$")),
        ('entrypoint: [""]', "entrypoint", ("",)),
        ("command: [on, no, 0o17, 1:30, 1e3, 010, ~x]", "command", ("on", "no", "0o17", "1:30", "1e3", "010", "~x")),
        (
            "environment: {A: on, B: 1, C: '', D: 1:30}",
            "environment",
            (("A", "on"), ("B", "1"), ("C", ""), ("D", "1:30")),
        ),
        ("environment: [A=b=c, B=]", "environment", (("A", "b=c"), ("B", ""))),
        ("environment: {A: 'x${secrets.hf}y'}", "environment", (("A", "x${secrets.hf}y"),)),
        (
            "environment: {API_KEY: EMPTY, TOKEN: '/run/secrets/t'}",
            "environment",
            (("API_KEY", "EMPTY"), ("TOKEN", "/run/secrets/t")),
        ),
        ("restart: no", "restart", Restart("no")),
        ("restart: on-failure:3", "restart", Restart("on-failure", 3)),
        ("restart: unless-stopped", "restart", Restart("unless-stopped")),
        (
            "ports: ['80:8080', '0.0.0.0:81:81/udp', '[::1]:82:82']",
            "ports",
            (PortMap(8080, 80), PortMap(81, 81, "0.0.0.0", "udp"), PortMap(82, 82, "::1")),
        ),
        ("tmpfs: /tmp:size=1g,mode=1777", "tmpfs", (Tmpfs("/tmp", "size=1g,mode=1777"),)),
        (
            "logging: {options: {max-size: 1m}}",
            "logging",
            Logging("json-file", (("max-file", "3"), ("max-size", "1m"))),
        ),
        ("logging: {driver: journald}", "logging", Logging("journald", ())),
        ("shm_size: 1GB", "shm_size", 10**9),
        ("user: 1000", "user", "1000"),
        ("stop_signal: SIGINT", "stop_signal", "SIGINT"),
    ],
)
def test_forms_a_key_can_take(tmp_path: Path, extra: str, key: str, value: object) -> None:
    site = site_with(tmp_path, small=LANE + f"    {extra}\n")
    (service,) = load_lane(site, "small", public=True).services
    assert getattr(service, key) == value


def test_relative_paths_start_at_the_site_whatever_folder_lanectl_runs_in(tmp_path: Path) -> None:
    text = LANE + '    volumes: [./a:/a:ro, "../b:/b", "${paths.local}/c:/c:rw", {source: d, target: /d}]\n'
    (service,) = load_lane(site_with(tmp_path / "site", small=text), "small", public=True).services
    site = f"{tmp_path}/site"
    assert service.mounts == (
        Mount(f"{site}/a", "/a", True),
        Mount(f"{tmp_path}/b", "/b"),
        Mount(f"{site}/sidecar/c", "/c"),
        Mount(f"{site}/d", "/d"),
    )


def test_regular_expressions_keep_their_dollar(tmp_path: Path) -> None:
    text = LANE.replace("ready: {models: true}", "ready: {models: true, log: '^up$', fatal: ['${x}$$']}")
    ready = load_lane(site_with(tmp_path, small=text), "small", public=True).server.ready
    assert ready is not None
    assert (ready.log, ready.fatal) == ("^up$", ("${x}$$",))


def test_services_start_after_what_they_depend_on(tmp_path: Path) -> None:
    text = (
        LANE
        + "    depends_on: [b, a]\n"
        + "".join(
            f"  {name}: {{container_name: c{name}, image: '${{images.engine}}', depends_on: [{needs}]}}\n"
            for name, needs in (("a", "c"), ("b", ""), ("c", ""))
        )
    )
    lane = load_lane(site_with(tmp_path, small=text), "small", public=True)
    assert [service.name for service in lane.services] == ["b", "c", "a", "server"]
    assert lane.server.name == "server"


def test_variants_merge_mappings_and_replace_lists(tmp_path: Path) -> None:
    text = LANE + (
        "    environment: {A: '1', B: '2'}\n    command: [a, b]\n"
        "variants: {v: {summary: other, services: {server: {environment: {B: '3', C: '4'}, command: [c]}}}}\n"
    )
    site = site_with(tmp_path, small=text)
    base, variant = load_lane(site, "small", public=True), load_lane(site, "small@v", public=True)
    assert base.server.environment == (("A", "1"), ("B", "2"))
    assert variant.server.environment == (("A", "1"), ("B", "3"), ("C", "4"))
    assert variant.server.command == ("c",)
    assert (variant.summary, variant.label, base.label) == ("other", "small@v", "small")


def test_what_station_yaml_does_not_give_yet_makes_a_lane_incomplete_not_wrong(tmp_path: Path) -> None:
    text = (
        LANE.replace("${images.engine}", "${images.engin}")
        + "    devices: ['nvidia.com/gpu=${gpus.h200}']\n    memory: {gpu: h200}\n"
        + "    volumes: ['${paths.weights}/x:/model:ro', '*${args.mounts}']\n"
        + "    command: [--a, '*${args.more}', '${paths.weights}']\n"
        + "    environment: {T: '${secrets.token}'}\n    env_file: '${paths.weights}/env'\n"
        + "map: {file: maps/none.json, mount: /m, services: [server]}\n"
    )
    lane = load_lane(site_with(tmp_path, small=text), "small", public=True)
    assert [(item.name, item.where) for item in lane.missing] == [
        ("images.engin", "lanes/small.yaml:6"),
        ("gpus.h200", "lanes/small.yaml:8"),
        ("paths.weights", "lanes/small.yaml:10"),
        ("args.mounts", "lanes/small.yaml:10"),
        ("args.more", "lanes/small.yaml:11"),
        ("secrets.token", "lanes/small.yaml:12"),
        ("maps/none.json", "lanes/small.yaml:14"),
    ]
    assert lane.missing[0].hint == "station.yaml: give engin under images: (did you mean engine?)"
    assert lane.missing[3] == Missing("args.mounts", "lanes/small.yaml:10", "station.yaml: give mounts under args:")
    server = lane.server
    assert server.image == "${images.engin}"
    assert server.devices == (Device("nvidia.com/gpu=${gpus.h200}"),)
    assert server.mounts == (Mount("${paths.weights}/x", "/model", True),)
    assert server.command == ("--a", "*${args.more}", "${paths.weights}")
    assert server.env_files == ()


def test_a_map_with_a_name_no_disk_can_hold_is_missing_too(tmp_path: Path) -> None:
    text = LANE + f"map: {{file: maps/{'m' * 300}, mount: /m, services: [server]}}\n"
    assert len(load_lane(site_with(tmp_path, small=text), "small", public=True).missing) == 1


def test_a_map_that_is_a_folder_is_missing_too(tmp_path: Path) -> None:
    (tmp_path / "maps/m.json").mkdir(parents=True)
    text = LANE + "map: {file: maps/m.json, mount: /m, services: [server]}\n"
    lane = load_lane(site_with(tmp_path, small=text), "small", public=True)
    assert [item.name for item in lane.missing] == ["maps/m.json"]
    assert lane.map is not None
    assert lane.map.sha256 is None


def test_an_env_file_that_cannot_be_used_makes_a_lane_incomplete(tmp_path: Path) -> None:
    site = site_with(tmp_path, small=LANE + "    env_file: [secret.env]\n")
    assert load_lane(site, "small", public=True).missing[0].name == f"{tmp_path}/secret.env"
    (tmp_path / "secret.env").write_text("A=1\n")
    (tmp_path / "secret.env").chmod(0o644)
    (missing,) = load_lane(site, "small", public=True).missing
    assert "mode 0644" in missing.hint
    (tmp_path / "secret.env").chmod(0o600)
    lane = load_lane(site, "small", public=True)
    assert lane.missing == ()
    assert lane.server.environment == (("A", f"${{env_file:{tmp_path}/secret.env:A}}"),)


def test_lane_names_never_raise(tmp_path: Path) -> None:
    make_site(tmp_path, small=LANE, v25=LANE)
    (tmp_path / "lanes/.hidden.yaml").write_text("")
    (tmp_path / "lanes/notes.txt").write_text("")
    (tmp_path / "lanes/Big Name.yaml").write_text("")
    assert lane_names(tmp_path) == ("small", "v25")
    assert lane_names(tmp_path / "nowhere") == ()
    assert lane_names(tmp_path / "station.yaml") == ()
    assert lane_names(Path("a\0b")) == ()


def test_gpus_are_named_by_role_and_appear_by_uuid(tmp_path: Path) -> None:
    text = LANE + "    devices: ['nvidia.com/gpu=${gpus.gb300}']\n    memory: {gpu: gb300, above_idle: 2GiB}\n"
    service = load_lane(site_with(tmp_path, small=text), "small", public=True).server
    assert service.devices[0].name == GB300
    assert service.memory == GpuMemory("gb300", GB300, 2048, 5.0, 120.0)
