"""station.yaml: what it gives, and what is wrong with it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from lanectl.core.site import EngineConfig, Gpu, SecretRef, Site, Thresholds
from lanectl.errors import ExitCode, LaneError, SpecError
from lanectl.site.load import load_site
from tests.support.site_dir import DIGEST, GB300, LANE, RTX, STATION, make_site, site_with, station_problems

LEAST = "station: t\nengine: {kind: docker}\nports: {public: 1, trial: 2}\n"


def test_everything_station_yaml_gives(tmp_path: Path) -> None:
    station = (
        STATION
        + "host: 0.0.0.0\nproduction: small@v\nreboot_recovery: accepted\n"
        + "thresholds: {mem_available: 40GiB, disk_free: 1GB, swap_deadline: 2h, restore_attempts: 5}\n"
    )
    station = station.replace("{env: TEST_API}", "{file: keys/api}")
    assert site_with(tmp_path, station, small=LANE) == Site(
        root=str(tmp_path),
        id=hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12],
        name="test",
        engine=EngineConfig("docker", "unix:///run/test.sock"),
        host="0.0.0.0",
        public_port=30006,
        trial_port=30016,
        gpus={"gb300": Gpu("gb300", GB300, 22), "rtx": Gpu("rtx", RTX, 0)},
        paths={"model": "/srv/model", "local": f"{tmp_path}/sidecar"},
        images={"engine": f"registry.example:5000/vllm@{DIGEST}"},
        args={"extra": ("--flag", "a b"), "none": ()},
        secrets={"hf": SecretRef("hf", env="TEST_HF"), "api": SecretRef("api", file=f"{tmp_path}/keys/api")},
        thresholds=Thresholds(40 * 2**30, 10**9, 7200.0, 5),
        production="small@v",
        reboot_recovery="accepted",
        lanes=("small",),
    )


def test_what_holds_without_being_said(tmp_path: Path) -> None:
    site = site_with(tmp_path, LEAST)
    assert site.engine == EngineConfig("docker", "unix:///var/run/docker.sock", None, ("/etc/cdi", "/var/run/cdi"))
    assert (site.host, site.production, site.reboot_recovery, site.lanes) == ("127.0.0.1", None, "required", ())
    assert site.thresholds == Thresholds()
    local = site_with(tmp_path / "local", LEAST.replace("docker", "local, cdi_spec_dirs: [cdi]"))
    assert local.engine == EngineConfig("local", "", None, (f"{tmp_path}/local/cdi",))


def test_keys_whose_values_are_all_commented_out_are_empty(tmp_path: Path) -> None:
    site = site_with(tmp_path, LEAST + "gpus:\n  # gb300: ...\npaths:\nimages:\nargs:\nsecrets:\n")
    assert (site.gpus, site.paths, site.images, site.args, site.secrets) == ({}, {}, {}, {}, {})


def test_one_site_has_one_id_by_whatever_path_it_is_reached(tmp_path: Path) -> None:
    root = make_site(tmp_path / "real", LEAST)
    (tmp_path / "link").symlink_to(root)
    assert load_site(tmp_path / "link") == load_site(root) == load_site(root / "lanes" / "..")


@pytest.mark.parametrize(
    ("text", "line", "path", "words"),
    [
        ("engin: {}", 4, "engin", "did you mean engine?"),
        ("gpus: {gb300: 0}", 4, "gpus.gb300", "a UUID such as GPU-"),
        ("gpus: {gb300: {idle: 1MiB}}", 4, "gpus.gb300", "needs the key uuid"),
        (f"gpus: {{a: {GB300}, b: {GB300}}}", 4, "gpus.b", "the same UUID as a"),
        ("images: {x: 'vllm:latest'}", 4, "images.x", "a tag can mean another image"),
        ("images: {x: null}", 4, "images.x", "has no value"),
        ("images: {'a.b': x}", 4, "images.a.b", "the name must be"),
        ("args: {x: word}", 4, "args.x", "must be a list"),
        ("args: {x: ['${port}']}", 4, "args.x[0]", "means nothing here"),
        ("args: {x: ['sk-abcdefghijklmnopqrst']}", 4, "args.x[0]", "a literal API key"),
        ("paths: {x: '/a:b'}", 4, "paths.x", "a colon"),
        ("secrets: {x: {}}", 4, "secrets.x", "exactly one of env or file"),
        ("secrets: {x: {env: A, file: b}}", 4, "secrets.x", "exactly one of env or file"),
        ("secrets: {x: hf_abcdefghijklmnopqrst}", 4, "secrets.x", "must be a mapping"),
        ("production: lane9", 4, "production", "there is no lane lane9"),
        ("reboot_recovery: maybe", 4, "reboot_recovery", "required or accepted"),
        ("thresholds: {mem_available: 40G}", 4, "thresholds.mem_available", "G is not a unit"),
        ("thresholds: {restore_attempts: 0}", 4, "thresholds.restore_attempts", "at least 1"),
        ("host: 'a b'", 4, "host", "an address or host name"),
        ("station: again", 4, "", "given twice"),
    ],
)
def test_a_mistake_in_station_yaml(tmp_path: Path, text: str, line: int, path: str, words: str) -> None:
    (problem,) = station_problems(tmp_path, LEAST + text + "\n")
    assert (problem.where, problem.path) == (f"station.yaml:{line}", path)
    assert words in str(problem)


@pytest.mark.parametrize(
    ("station", "paths"),
    [
        ("{}", ["", "", ""]),  # station, engine and ports are required
        ("station: t\nengine: {}\nports: {public: 1}\n", ["engine", "ports"]),
        (LEAST.replace("trial: 2", "trial: 1"), ["ports"]),
        (LEAST.replace("trial: 2", "trial: 65536"), ["ports.trial"]),
        (LEAST.replace("docker", "podman"), ["engine.kind"]),
        (LEAST.replace("docker", "docker, endpoint: 'ssh://host'"), ["engine.endpoint"]),
        (
            LEAST.replace("docker", "local, endpoint: 'unix:///x', daemon_id: y"),
            ["engine.endpoint", "engine.daemon_id"],
        ),
        ("a: [", [""]),
        ("", [""]),
    ],
)
def test_what_a_station_needs(tmp_path: Path, station: str, paths: list[str]) -> None:
    assert [problem.path for problem in station_problems(tmp_path, station)] == paths


def test_files_in_lanes_that_would_never_be_found_are_reported(tmp_path: Path) -> None:
    make_site(tmp_path, LEAST, small=LANE)
    (tmp_path / "lanes/v25.yml").write_text(LANE)
    (tmp_path / "lanes/Big Lane.yaml").write_text(LANE)
    (tmp_path / "lanes/notes.md").write_text("notes")
    with pytest.raises(SpecError) as caught:
        load_site(tmp_path)
    assert [problem.where for problem in caught.value.problems] == ["lanes/Big Lane.yaml", "lanes/v25.yml"]


def test_no_site_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(LaneError) as caught:
        load_site(tmp_path)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "station.example.yaml" in str(caught.value.hint)
    assert "lanectl demo" in str(caught.value.hint)
    for nowhere in (tmp_path / "nowhere", tmp_path / ("x" * 300), Path("a\0b"), tmp_path / "\udcff"):
        with pytest.raises(LaneError, match="no such directory"):
            load_site(nowhere)


def test_a_station_yaml_that_is_no_file_is_a_spec_error(tmp_path: Path) -> None:
    (tmp_path / "station.yaml").mkdir()
    with pytest.raises(SpecError, match="not a regular file"):
        load_site(tmp_path)
    loop = tmp_path / "other"
    loop.mkdir()
    (loop / "station.yaml").symlink_to("station.yaml")
    with pytest.raises(SpecError, match="symbolic links"):
        load_site(loop)
