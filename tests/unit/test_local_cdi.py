"""CDI spec files: names, precedence, conflicts, and the environment that a device brings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lanectl.engine.cdi import read_specs

GB300, RTX = "GPU-aaaaaaaa", "GPU-bbbbbbbb"


def spec(*names: str, env: tuple[str, ...] = (), common: tuple[str, ...] = ()) -> dict[str, Any]:
    devices = [{"name": name, "containerEdits": {"env": list(env), "deviceNodes": [{"path": "/x"}]}} for name in names]
    return {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": {"env": [*common]}}


def put(directory: Path, name: str, content: Any) -> str:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return str(directory)


def test_devices_bring_the_specs_edits_and_then_their_own(tmp_path: Path) -> None:
    folder = put(tmp_path / "cdi", "a.json", spec(GB300, env=("CUDA_VISIBLE_DEVICES=x",), common=("N=void",)))
    found = read_specs([folder])
    device = found.find(f"nvidia.com/gpu={GB300}")
    assert device is not None
    assert device.env == ("N=void", "CUDA_VISIBLE_DEVICES=x")
    assert device.source == f"{folder}/a.json"
    assert found.problems == ()


def test_yaml_as_nvidia_ctk_writes_it(tmp_path: Path) -> None:
    text = f"""---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: {GB300}
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
"""
    found = read_specs([put(tmp_path / "cdi", "nvidia.yaml", text)])
    assert [device.qualified for device in found.devices] == ["nvidia.com/gpu=0", f"nvidia.com/gpu={GB300}"]
    assert {device.env for device in found.devices} == {("NVIDIA_VISIBLE_DEVICES=void",)}


def test_a_later_directory_wins(tmp_path: Path) -> None:
    etc = put(tmp_path / "etc", "nvidia.json", spec(GB300, RTX, env=("FROM=etc",)))
    run = put(tmp_path / "run", "nvidia.json", spec(GB300, env=("FROM=run",)))
    found = read_specs([etc, run, str(tmp_path / "absent")])
    assert {device.qualified[-13:]: device.env for device in found.devices} == {
        f"={GB300}"[-13:]: ("FROM=run",),
        f"={RTX}"[-13:]: ("FROM=etc",),
    }


def test_T28_the_same_device_in_two_files_of_one_directory_is_gone_and_the_reason_is_told(tmp_path: Path) -> None:
    folder = put(tmp_path / "cdi", "a.json", spec(GB300, RTX))
    put(tmp_path / "cdi", "b.yaml", spec(GB300))
    found = read_specs([folder])
    assert [device.qualified for device in found.devices] == [f"nvidia.com/gpu={RTX}"]
    told = found.problem([f"nvidia.com/gpu={GB300}"])
    assert told is not None
    for part in ("unresolvable CDI devices", GB300, RTX, "a.json", "b.yaml", "in two files"):
        assert part in told


def test_T28_a_conflict_hides_the_device_of_a_lower_directory_too(tmp_path: Path) -> None:
    etc = put(tmp_path / "etc", "a.json", spec(GB300))
    run = put(tmp_path / "run", "a.json", spec(GB300))
    put(tmp_path / "run", "b.json", spec(GB300))
    assert read_specs([etc, run]).devices == ()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"x"', "{}", '{"kind": "nvidia", "devices": []}', '{"kind": 1, "devices": []}',
     '{"kind": "a/b", "devices": [{}]}', '{"kind": "a/b", "devices": 5}', '{"kind": "a/b", "devices": ["x"]}',
     '{"kind": "a/b", "devices": [{"name": "n", "containerEdits": {"env": ["NOVALUE"]}}]}',
     '{"kind": "a/b", "devices": [{"name": "n", "containerEdits": "x"}]}', "a: b: c", "\0"],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_damaged_file_is_told_and_hides_no_other(tmp_path: Path, text: str, suffix: str) -> None:
    folder = put(tmp_path / "cdi", f"bad{suffix}", text)
    put(tmp_path / "cdi", "good.json", spec(RTX))
    found = read_specs([folder])
    assert [device.qualified for device in found.devices] == [f"nvidia.com/gpu={RTX}"]
    assert len(found.problems) == 1
    assert f"bad{suffix} is not a CDI spec" in found.problems[0]
    assert "\n" not in found.problems[0]
    assert found.problem([f"nvidia.com/gpu={RTX}"]) is None


def test_where_there_is_nothing_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no spec")
    found = read_specs([str(tmp_path)])
    assert found.devices == ()
    assert found.problem([]) is None
    assert "known are: none" in (found.problem(["nvidia.com/gpu=x"]) or "")
