"""maps/MANIFEST.yaml: the expert maps this site knows and the sha256 each must have."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from lanectl.errors import Problem
from lanectl.site.reader import read_file
from lanectl.site.shape_reader import ShapeReader
from lanectl.site.shapes import Key, MapOf, Record, Str

NAME = "maps/MANIFEST.yaml"
_CHUNK = 1024 * 1024

SHAPE = Record(
    (
        Key(
            "maps",
            MapOf(
                Record(
                    (
                        Key("summary", Str(names=False), "one line for people"),
                        Key("source", Str(names=False), "where its owner publishes it"),
                        Key(
                            "sha256",
                            Str(form="64 small hex digits", pattern="[0-9a-f]{64}", names=False),
                            "`sha256sum` of the file; a lane whose map has none is shown as unlisted",
                        ),
                    )
                ),
                r"[^/\0][^\0]*",
                "a file in maps/",
            ),
            "maps by file name",
            required=True,
        ),
    )
)


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One map of the manifest. `sha256` is None where nobody has filled it in yet."""

    file: str
    summary: str = ""
    source: str = ""
    sha256: str | None = None


def read_manifest(root: Path) -> tuple[dict[str, MapEntry], list[Problem]]:
    """Given a site's root, return the manifest's maps by file name and what is wrong with it. No manifest: no maps."""
    path = root / NAME
    if not os.path.lexists(path):
        return {}, []
    tree, problems = read_file(path, NAME)
    reader = ShapeReader(None)
    value = reader.read(SHAPE, tree, "") if tree is not None else None
    found: dict[str, MapEntry] = {}
    maps = value.get("maps") if value else None
    for name, entry in maps.data.items() if maps else ():
        found[name] = MapEntry(name, entry.of("summary", ""), entry.of("source", ""), entry.of("sha256"))
    return found, [*problems, *reader.problems]


def file_sha256(path: str | Path) -> str:
    """Given a file, return the hex sha256 of its bytes. Raise OSError when it cannot be read."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
