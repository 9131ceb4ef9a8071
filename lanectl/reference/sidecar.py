"""`python -m lanectl.reference.sidecar`: the process that computes a server's cold experts.

Its log has the published sidecar's lines; `serving` is the last of the boot. There are no `captured N graphs` and no
statistics file, because there are no graphs here.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from lanectl.reference.bootlog import Log
from lanectl.reference.faults import VARIABLE, Faults
from lanectl.reference.options import add_model_options

if TYPE_CHECKING:
    from lanectl.reference.cold_experts import ColdExperts
    from lanectl.reference.rowmap import RowMap
    from lanectl.reference.weights import Shape

_GB = 1e9


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    options = argparse.ArgumentParser(
        prog="python -m lanectl.reference.sidecar",
        description="Computes the cold experts of a reference engine that runs with --placement sidecar.",
    )
    add_model_options(options)
    options.add_argument("--fault", action="append", default=[], metavar="KIND[=VALUE]", help="misbehave; repeatable")
    return options


def main(arguments: list[str] | None = None) -> NoReturn:
    """Serve until SIGTERM or SIGINT; exit 0 then, 1 if it cannot or must not serve, 2 for a wrong command line."""
    # One thread for the matrix products: they are far too small to share. Must be set before numpy is loaded.
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    options = parser()
    settings = options.parse_args(arguments)
    try:
        if settings.rowmap is None:
            raise ValueError("--rowmap FILE is needed: the expert map, the same as the server's")
        faults = Faults.read([*shlex.split(os.environ.get(VARIABLE, "")), *settings.fault])
    except ValueError as problem:
        options.error(str(problem))
    sys.exit(_run(settings, faults, Log()))


def _run(settings: argparse.Namespace, faults: Faults, log: Log) -> int:
    from lanectl.reference.peer_file import PeerFile, PeerFileError
    from lanectl.reference.rowmap import RowMapError, read_rowmap
    from lanectl.reference.sidecar_faults import CallFaults, damage
    from lanectl.reference.sidecar_loop import SidecarLoop
    from lanectl.reference.sidecar_selftest import LEAST_COSINE, lowest_cosine
    from lanectl.reference.weights import SHAPES

    shape = SHAPES[settings.shape]
    try:
        rowmap = read_rowmap(settings.rowmap, shape)
        file = PeerFile(settings.shm, shape)
    except (RowMapError, PeerFileError) as problem:
        log.line(f"ValueError: {problem}")
        return 1
    log.line(rowmap.line)
    experts = _prepared(settings.seed, shape, rowmap, log)
    damage(experts, faults)
    layer, cosine = lowest_cosine(experts, settings.seed, shape, rowmap)
    if cosine < LEAST_COSINE:
        log.line(f"SELFTEST FAILED: layer {layer} cos {cosine:.5f}, below {LEAST_COSINE}; not serving")
        return 1
    log.line(f"selftest: lowest cosine {cosine:.5f}, layer {layer}")
    loop = SidecarLoop(file, experts, rowmap.number, CallFaults(faults), log.line)
    log.line(f"serving {settings.shm}")
    return loop.run()


def _prepared(seed: int, shape: Shape, rowmap: RowMap, log: Log) -> ColdExperts:
    from lanectl.reference.cold_experts import ColdExperts

    began = time.monotonic()
    experts = ColdExperts(shape, rowmap.cold_count)
    for layer in range(shape.layers):
        done = experts.prepare(layer, seed, rowmap.cold[layer])
        log.line(f"layer {layer}: {rowmap.cold_count} cold experts prepared, {done / _GB:.4f} GB allocated")
    seconds = time.monotonic() - began
    log.line(f"prepared {shape.layers} layers in {seconds:.1f}s; {experts.nbytes / _GB:.4f} GB allocated")
    return experts


if __name__ == "__main__":
    main()
