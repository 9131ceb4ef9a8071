"""Gate records: that a gate passed for one map and one image. `requires:` asks for them before a swap.

`state/gates/<gate>-<map sha256, 16 hex>-<image id, 16 hex>.json`, one file each, replaced by a newer verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lanectl.core.codec import from_json, to_json
from lanectl.core.gates import GateResult
from lanectl.errors import LaneError
from lanectl.store.files import ensure_dir, read_json, write_json

HEX = 16  # of each digest in a name: enough to tell files apart; the record holds the whole digests


@dataclass(frozen=True, slots=True)
class GateRecord:
    """A verdict for one map and image, when it was reached and by which swap."""

    result: GateResult
    map_sha256: str
    image_id: str
    lane: str
    swap: str
    at: str


def record(folder: Path, entry: GateRecord) -> Path:
    """Keep a verdict, in the place of an older one for the same gate, map and image. Raise `LaneError`."""
    ensure_dir(folder)
    path = _path(folder, entry.result.gate, entry.map_sha256, entry.image_id)
    write_json(path, to_json(entry))
    return path


def find(folder: Path, gate: str, map_sha256: str, image_id: str) -> GateRecord | None:
    """Return the verdict for this gate, map and image; None when there is none.

    Raise `LaneError` when the record cannot be understood: it is never taken for a pass.
    """
    path = _path(folder, gate, map_sha256, image_id)
    data = read_json(path)
    if data is None:
        return None
    entry = from_json(GateRecord, data)
    if (entry.result.gate, entry.map_sha256, entry.image_id) != (gate, map_sha256, image_id):
        raise LaneError(f"{path} is about another map or image", "remove it and run the gate again")
    return entry


def _path(folder: Path, gate: str, map_sha256: str, image_id: str) -> Path:
    return folder / f"{gate}-{map_sha256[:HEX]}-{image_id.rpartition(':')[2][:HEX]}.json"
