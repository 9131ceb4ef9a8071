"""Where a map's cold experts are, and making the experts of each placement."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from lanectl.reference.peer_words import MAX_ROWS, SPINS_VARIABLE

if TYPE_CHECKING:
    from lanectl.reference.experts import Experts
    from lanectl.reference.rowmap import RowMap
    from lanectl.reference.weights import Shape

RESIDENT, SIDECAR = "resident", "sidecar"
PLACEMENTS = (RESIDENT, SIDECAR)


class PlacementError(Exception):
    """The experts cannot be placed with these settings."""


def make_experts(settings: argparse.Namespace, shape: Shape, rowmap: RowMap | None) -> Experts:
    """Given the settings and the map, return the experts where the settings want them. Raise PlacementError."""
    from lanectl.reference.experts import Experts

    if settings.placement == RESIDENT:
        return Experts(settings.seed, shape)
    if rowmap is None:
        raise PlacementError(f"--placement {settings.placement} needs a map: --rowmap FILE")
    return _with_sidecar(settings, shape, rowmap)


def _with_sidecar(settings: argparse.Namespace, shape: Shape, rowmap: RowMap) -> Experts:
    from lanectl.reference.peer import DEFAULT_SPINS, Peer
    from lanectl.reference.peer_experts import SidecarExperts
    from lanectl.reference.peer_file import PeerFile, PeerFileError

    rows = max(settings.max_num_batched_tokens, settings.max_num_seqs + 1)  # the scheduler's largest step
    if rows > MAX_ROWS:
        raise PlacementError(f"a step may have {rows} rows, the sidecar takes {MAX_ROWS}")
    text = os.environ.get(SPINS_VARIABLE, str(DEFAULT_SPINS))
    if not text.isascii() or not text.isdigit():
        raise PlacementError(f"{SPINS_VARIABLE} must be a number of spins, not {text!r}")
    try:
        file = PeerFile(settings.shm, shape)
    except PeerFileError as problem:
        raise PlacementError(str(problem)) from None
    return SidecarExperts(settings.seed, shape, rowmap, Peer(file, int(text)))
