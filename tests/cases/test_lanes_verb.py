"""`lanectl lanes`, `render`, `schema`: the specs as an operator looks at them before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lanectl.errors import ExitCode
from tests.support.command_line import CommandLine
from tests.support.site_dir import LANE, STATION, make_site

INCOMPLETE = LANE.replace("small", "waits").replace("images.engine", "images.not_given_yet")
TYPO = LANE.replace("small", "typo").replace("container_name", "contaner_name") + "    devices: [gpu=0]\n"


@pytest.fixture
def lanectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    make_site(tmp_path, STATION, small=LANE, waits=INCOMPLETE)
    monkeypatch.setenv("LANECTL_SITE", str(tmp_path))
    return CommandLine(capsys)


def _add(root: Path, name: str, text: str) -> None:
    (root / "lanes" / f"{name}.yaml").write_text(text)


def test_list_says_what_each_is_and_whether_it_is_complete(lanectl: CommandLine, tmp_path: Path) -> None:
    _add(tmp_path, "typo", TYPO)
    shown = lanectl("lanes", "list")
    assert shown.code == ExitCode.OK
    assert [line.split() for line in shown.out.splitlines()] == [
        ["small", "complete"],
        ["typo", "wrong"],
        ["waits", "incomplete"],
    ]
    said = lanectl("lanes", "list", "--json").json
    assert {lane["lane"]: lane["state"] for lane in said["lanes"]}["waits"] == "incomplete"
    assert said["production"] is None


def test_an_incomplete_lane_validates_and_says_what_to_fill_in(lanectl: CommandLine) -> None:
    shown = lanectl("lanes", "validate")
    assert shown.code == ExitCode.OK
    assert "waits: incomplete" in shown.out
    assert "images.not_given_yet is not given" in shown.out
    assert lanectl("lanes", "validate", "small").out == "small: complete\n"


def test_every_slip_is_told_with_its_line_and_is_exit_2(lanectl: CommandLine, tmp_path: Path) -> None:
    _add(tmp_path, "typo", TYPO)
    shown = lanectl("lanes", "validate")
    assert shown.code == ExitCode.USAGE
    assert "lanes/typo.yaml:5: services.server.contaner_name" in shown.out
    assert "container_name" in shown.out
    assert "small: complete" in shown.out
    only = lanectl("lanes", "validate", "typo", "--json")
    assert (only.code, only.json["exit_code"]) == (2, 2)
    (lane,) = only.json["lanes"]
    assert lane["state"] == "wrong"
    assert {problem["where"].partition(":")[0] for problem in lane["problems"]} == {"lanes/typo.yaml"}
    assert lanectl("lanes", "validate", "small").code == ExitCode.OK


def test_a_lane_that_is_not_there_is_named_with_the_nearest(lanectl: CommandLine) -> None:
    for words in (["lanes", "validate", "smal"], ["lanes", "show", "smal"], ["render", "smal"], ["plan", "smal"]):
        shown = lanectl(*words)
        assert (shown.code, "small" in shown.err) == (ExitCode.USAGE, True)


def test_show_is_the_lane_with_every_name_resolved(lanectl: CommandLine) -> None:
    shown = yaml.safe_load(lanectl("lanes", "show", "small").out)
    assert shown["services"][0]["image"].startswith("registry.example:5000/vllm@sha256:")
    assert lanectl("lanes", "show", "small", "--json").json["lane"]["services"][0]["container_name"] == "small"


def test_render_gives_docker_run_and_compose(lanectl: CommandLine) -> None:
    shown = lanectl("render", "small")
    assert (shown.code, shown.err) == (ExitCode.OK, "")
    assert shown.out.startswith("docker run --detach --pull never --name small ")
    compose = yaml.safe_load(lanectl("render", "small", "--compose").out)
    assert compose["services"]["server"]["container_name"] == "small"
    assert lanectl("render", "small", "--json").json["docker_run"]["server"][:2] == ["docker", "run"]
    assert lanectl("render", "small", "--compose", "--json").json["compose"] == compose


def test_render_of_an_incomplete_lane_says_so_beside_the_result(lanectl: CommandLine) -> None:
    shown = lanectl("render", "waits")
    assert "images.not_given_yet is not given" in shown.err
    assert "docker run" in shown.out


def test_schema_needs_no_site_and_is_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lanectl = CommandLine(capsys)
    assert "services" in json.loads(lanectl("schema").out)["properties"]
    assert "ports" in json.loads(lanectl("schema", "--station").out)["properties"]


def test_a_broken_station_yaml_is_told_with_its_line(lanectl: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "station.yaml").write_text(STATION.replace("ports:", "prots:"))
    shown = lanectl("lanes", "list")
    assert (shown.code, shown.out) == (ExitCode.USAGE, "")
    assert "station.yaml:3" in shown.err
    assert "did you mean" in shown.err or "ports" in shown.err
