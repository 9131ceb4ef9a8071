"""The expert map: which experts of each layer are hot (in fast memory) and which are cold.

`{"layers": {"0": {"hot": [ids], "cold": [ids]}, …}, "meta": {…}}`, or the layers alone. The order matters: an expert's
place in its list is its row in the hot store, or its local id on both sides of the sidecar's protocol.
Source: the row maps of the public DeepSeek-V4.1-Flash sidecar recipe, and what its hook refuses.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lanectl.reference.weights import Shape

_HASH_BYTES = 8  # of the digest, as a little-endian signed number: a word of the shared-memory file

Lists = tuple[tuple[int, ...], ...]  # one list of expert ids a layer


class RowMapError(Exception):
    """The file is not a map of this model."""


@dataclass(frozen=True)
class RowMap:
    """A map that was checked, and the sha256 of the file it came from."""

    hot: Lists
    cold: Lists
    sha256: str

    @property
    def hot_count(self) -> int:
        """Hot experts of a layer; the same in every layer."""
        return len(self.hot[0])

    @property
    def cold_count(self) -> int:
        """Cold experts of a layer; the same in every layer."""
        return len(self.cold[0])

    @property
    def number(self) -> int:
        """The map as one signed 64-bit number: sha256 over the compact JSON of every layer's cold ids, sorted.
        Source: the handshake word of the published two-Station sidecar."""
        lists = {str(layer): sorted(cold) for layer, cold in enumerate(self.cold)}
        digest = hashlib.sha256(json.dumps(lists, separators=(",", ":")).encode()).digest()
        return int.from_bytes(digest[:_HASH_BYTES], "little", signed=True)

    @property
    def line(self) -> str:
        """What both sides print about it."""
        return (
            f"expert map: {self.hot_count} hot, {self.cold_count} cold a layer, "
            f"sha256 {self.sha256}, rowmap hash {self.number}"
        )


def read_rowmap(path: str, shape: Shape) -> RowMap:
    """Given a file and the model's shape, return its map. Raise RowMapError unless, in every layer, each expert is
    either hot or cold, once, and as many are cold as in the others."""
    try:
        data = Path(path).read_bytes()
        content = json.loads(data)
    except (OSError, ValueError) as problem:
        raise RowMapError(f"expert map {path}: {problem}") from None
    layers = content.get("layers", content) if isinstance(content, dict) else None
    names = [str(layer) for layer in range(shape.layers)]
    if not isinstance(layers, dict) or sorted(layers) != sorted(names):
        raise RowMapError(f"expert map {path}: its layers must be 0 to {shape.layers - 1}")
    hot = tuple(_ids(path, layers, name, "hot") for name in names)
    cold = tuple(_ids(path, layers, name, "cold") for name in names)
    for name, warm, rest in zip(names, hot, cold, strict=True):
        _check_layer(f"expert map {path}: layer {name}", warm, rest, shape.experts)
        if len(rest) != len(cold[0]):
            raise RowMapError(
                f"expert map {path}: layer {name} has {len(rest)} cold experts, layer 0 has {len(cold[0])}; "
                f"every layer must have as many"
            )
    return RowMap(hot, cold, hashlib.sha256(data).hexdigest())


def _ids(path: str, layers: dict[str, Any], name: str, temperature: str) -> tuple[int, ...]:
    ids = layers[name].get(temperature) if isinstance(layers[name], dict) else None
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise RowMapError(f"expert map {path}: layer {name} needs a list of expert ids `{temperature}`")
    return tuple(ids)


def _check_layer(where: str, hot: tuple[int, ...], cold: tuple[int, ...], experts: int) -> None:
    both = sorted(set(hot) & set(cold))
    if both:
        raise RowMapError(f"{where}: experts {both} are both hot and cold")
    if sorted(hot + cold) != list(range(experts)):
        raise RowMapError(f"{where}: hot and cold must be the experts 0 to {experts - 1}, each once")
