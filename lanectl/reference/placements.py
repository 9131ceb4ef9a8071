"""Where a map's cold experts are, and making the experts of each placement."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from lanectl.reference.peer_words import MAX_ROWS, SPINS_VARIABLE

if TYPE_CHECKING:
    from lanectl.reference.bootlog import EngineLog
    from lanectl.reference.experts import Experts
    from lanectl.reference.rowmap import RowMap
    from lanectl.reference.weights import Shape

PLACEMENTS = {
    "resident": "all experts in fast memory, whatever the map says",
    "v23": "cold experts in host memory, read in place",
    "october": "the same, and often-picked experts change places with quiet ones",
    "sidecar": "cold experts computed by a sidecar process",
    "gracetier": "cold experts in host memory, the picked ones copied into a scratch area; places change as in october",
}
# Of adaptive residency: a cold expert must be picked so many times as often as a hot one to take its place. The
# published default, twice what its authors used at first.
HYSTERESIS = 3.0
ADAPTIVE = ("october", "gracetier")


class PlacementError(Exception):
    """The experts cannot be placed with these settings."""


def make_experts(settings: argparse.Namespace, shape: Shape, rowmap: RowMap | None, log: EngineLog) -> Experts:
    """Given the settings, the map and the log, return the experts where the settings want them. Raise
    PlacementError."""
    from lanectl.reference.experts import Experts
    from lanectl.reference.tiers import ScratchExperts, TieredExperts

    if settings.placement == "resident":
        return Experts(settings.seed, shape)
    if rowmap is None:
        raise PlacementError(f"--placement {settings.placement} needs a map: --rowmap FILE")
    if settings.placement == "sidecar":
        return _with_sidecar(settings, shape, rowmap, log)
    tiers = ScratchExperts if settings.placement == "gracetier" else TieredExperts
    return tiers(settings.seed, shape, rowmap)


def _with_sidecar(settings: argparse.Namespace, shape: Shape, rowmap: RowMap, log: EngineLog) -> Experts:
    from lanectl.reference.peer import DEFAULT_SPINS, Peer
    from lanectl.reference.peer_check import peer_check
    from lanectl.reference.peer_experts import SidecarExperts
    from lanectl.reference.peer_file import PeerFile, PeerFileError

    rows = max(settings.max_num_batched_tokens, settings.max_num_seqs + 1)  # the scheduler's largest step
    if rows > MAX_ROWS:
        raise PlacementError(f"a step may have {rows} rows, the sidecar takes {MAX_ROWS}")
    try:
        spins = int(os.environ.get(SPINS_VARIABLE, DEFAULT_SPINS))
        check = peer_check(settings.seed, shape, log.line)
    except ValueError as problem:
        raise PlacementError(f"{SPINS_VARIABLE} and the variables of check mode are numbers: {problem}") from None
    try:
        file = PeerFile(settings.shm, shape)
    except PeerFileError as problem:
        raise PlacementError(str(problem)) from None
    return SidecarExperts(settings.seed, shape, rowmap, Peer(file, spins), check)
