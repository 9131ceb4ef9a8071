"""CDI spec files, as far as the local engine honours them: which devices exist and what environment each brings.

Source: Container Device Interface specification, "CDI JSON Specification": `kind`, `devices[].name`,
`containerEdits.env` of the spec and of the device. A later directory wins over an earlier one; the same device in two
files of one directory is a conflict, and then it does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUFFIXES = (".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A device by its qualified name `vendor/class=name`, the file it is from, and its `NAME=value` edits in order."""

    qualified: str
    source: str
    env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CdiSpecs:
    """All devices found, and what kept others from being found, in words."""

    devices: tuple[CdiDevice, ...] = ()
    problems: tuple[str, ...] = ()

    def find(self, qualified: str) -> CdiDevice | None:
        return next((device for device in self.devices if device.qualified == qualified), None)

    def problem(self, wanted: Iterable[str]) -> str | None:
        """Given qualified names, return why they cannot all be resolved, in one line; None when they can."""
        unknown = [name for name in wanted if self.find(name) is None]
        if not unknown:
            return None
        known = ", ".join(device.qualified for device in self.devices) or "none"
        why = "".join(f"; {problem}" for problem in self.problems)
        return f"unresolvable CDI devices {', '.join(unknown)}; known are: {known}{why}"


def read_specs(directories: Sequence[str]) -> CdiSpecs:
    """Given CDI directories, lowest priority first, return their devices. A missing directory has none."""
    devices: dict[str, CdiDevice] = {}
    problems: list[str] = []
    for directory in directories:
        found: dict[str, list[CdiDevice]] = {}
        for path in _spec_files(Path(directory), problems):
            try:
                spec_devices = _devices(_load(path), str(path))
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                problems.append(f"{path} is not a CDI spec: {_one_line(error)}")
                continue
            for device in spec_devices:
                found.setdefault(device.qualified, []).append(device)
        for name, same in found.items():
            devices.pop(name, None)
            if len(same) == 1:
                devices[name] = same[0]
            else:
                problems.append(f"{name} is in two files: {', '.join(device.source for device in same)}")
    return CdiSpecs(tuple(devices[name] for name in sorted(devices)), tuple(problems))


def _spec_files(directory: Path, problems: list[str]) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"cannot read {directory}: {error.strerror}")
        return []


def _load(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error) from error


def _devices(spec: Any, source: str) -> list[CdiDevice]:
    """Given a parsed spec, return its devices. Raise Key-, Type-, Attribute- or ValueError when it is none."""
    if spec["kind"].count("/") != 1:
        raise ValueError("kind is not vendor/class")
    common = _env(spec)
    return [
        CdiDevice(f"{spec['kind']}={device['name']}", source, (*common, *_env(device))) for device in spec["devices"]
    ]


def _env(holder: Any) -> tuple[str, ...]:
    edits = holder.get("containerEdits") or {}
    env = tuple(edits.get("env") or ())
    if not all(isinstance(item, str) and "=" in item for item in env):
        raise ValueError("containerEdits.env is not a list of NAME=value")
    return env


def _one_line(error: Exception) -> str:
    words = f"no key {error}" if isinstance(error, KeyError) else str(error)
    return " ".join(words.split())
