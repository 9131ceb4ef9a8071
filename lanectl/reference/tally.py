"""How often each expert was picked, and the counts file that maps are built from.

Source of the file: `MEGA_COUNT` of the published hook: `{"layers": {"0": [picks of each expert], …}, "time": unix
seconds}`, written every 20 s.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lanectl.reference.experts import Ids
from lanectl.reference.weights import Shape

VARIABLE = "MEGA_COUNT"


class Tally:
    """Picks of every expert since the boot: `counts`, (layers, experts)."""

    def __init__(self, shape: Shape) -> None:
        self._experts = shape.experts
        self.counts: NDArray[np.int64] = np.zeros((shape.layers, shape.experts), np.int64)

    def add(self, layer: int, picked: Ids) -> None:
        """Given what a layer's rows picked, count it."""
        self.counts[layer] += np.bincount(picked.ravel(), minlength=self._experts)

    def write(self, path: Path) -> None:
        """Write the counts file, as a whole or not at all. Raise OSError."""
        layers = {str(layer): counts for layer, counts in enumerate(self.counts.tolist())}
        unfinished = path.with_name(path.name + ".new")
        unfinished.write_text(json.dumps({"layers": layers, "time": time.time()}))
        unfinished.replace(path)
