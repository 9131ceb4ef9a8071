"""CDI devices for tests without a GPU: named like a Station's, with a real device node inside the container.

Source: the Container Device Interface specification 0.6 (cdiVersion, kind, devices, containerEdits).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

KIND = "nvidia.com/gpu"
GPUS = {  # role -> UUID, of the shape that nvidia-smi prints
    "gb300": "GPU-aaaaaaaa-0000-4000-8000-000000000300",
    "rtx": "GPU-bbbbbbbb-0000-4000-8000-000000006000",
}
NAMES = {role: f"{KIND}={uuid}" for role, uuid in GPUS.items()}
NODES = {"gb300": "/dev/nvidia0", "rtx": "/dev/nvidia1"}
NODE_NUMBERS = (1, 3)  # /dev/null's: every machine has that device, and writing to it harms nothing
SPEC_FILE = "lanectl-test.json"


def spec(gpus: Mapping[str, str] = GPUS) -> dict[str, object]:
    """Given UUIDs by role, return the CDI spec of both devices: an environment variable and a character device each."""
    major, minor = NODE_NUMBERS
    devices = [
        {
            "name": uuid,
            "containerEdits": {
                "env": [f"NVIDIA_VISIBLE_DEVICES={uuid}"],
                "deviceNodes": [{"path": NODES[role], "type": "c", "major": major, "minor": minor}],
            },
        }
        for role, uuid in gpus.items()
    ]
    return {"cdiVersion": "0.6.0", "kind": KIND, "devices": devices}


def write_specs(folder: Path) -> None:
    """Given a CDI spec folder, write the spec into it (a daemon reads it again by itself)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SPEC_FILE).write_text(json.dumps(spec(), indent=2))
