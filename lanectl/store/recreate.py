"""Create arguments of owed containers, kept so that a container removed behind our back can be made again.

They may hold secrets of a production that was started by hand, so they live in 0600 files of their own and are never
printed, journalled or audited; records name them by path.
"""

from __future__ import annotations

import json
from pathlib import Path

from lanectl.core.container import CreateArgs
from lanectl.errors import LaneError
from lanectl.store.files import ensure_dir, read_bytes, write_atomic


def save(directory: Path, container_id: str, args: CreateArgs) -> str:
    """Keep the arguments under the container's id; return the file's name in `directory`."""
    ensure_dir(directory)
    name = f"{container_id}.json"
    write_atomic(directory / name, json.dumps({"name": args.name, "body": args.body}, sort_keys=True).encode())
    return name


def load(directory: Path, name: str) -> CreateArgs:
    """Return kept arguments. Raise `StoreError` when they cannot be reached, `LaneError` when they are missing or
    damaged."""
    path = directory / name
    content = read_bytes(path)
    try:
        if content is None:
            raise ValueError("there is no such file")
        data = json.loads(content)
        return CreateArgs(name=data["name"], body=data["body"])
    except (ValueError, KeyError, TypeError) as error:
        raise LaneError(f"{path}: create arguments cannot be read: {error}") from error
