"""state/production.json: what production is. Replaced atomically; unreadable is an error, never "empty"."""

from __future__ import annotations

import json
from pathlib import Path

from lanectl.core.codec import from_json, to_json
from lanectl.core.owed import Production
from lanectl.errors import ExitCode, LaneError
from lanectl.store.files import ensure_dir, read_bytes, write_atomic

FORMAT = 1


def load(path: Path) -> Production:
    """Return what production is; a site that never recorded any has an empty `Production`.

    Raise `LaneError` when the file is there and cannot be understood.
    """
    content = read_bytes(path)
    if content is None:
        return Production()
    try:
        data = json.loads(content)
        if not isinstance(data, dict) or data.pop("v", None) != FORMAT:
            raise LaneError(f"not in format {FORMAT}")
        return from_json(Production, data)
    except (ValueError, LaneError) as error:
        raise LaneError(
            f"{path}: this is not a production record: {error}",
            "put a good copy back; else move it away, and `lanectl adopt` records what runs now",
            ExitCode.UNFINISHED,
        ) from error


def save(path: Path, production: Production) -> None:
    """Replace the record durably. Raise `LaneError` when it could not be written; the old one stays then."""
    ensure_dir(path.parent)
    write_atomic(path, json.dumps({"v": FORMAT, **to_json(production)}, sort_keys=True, indent=1).encode() + b"\n")
