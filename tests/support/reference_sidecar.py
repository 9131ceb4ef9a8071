"""The reference engine's sidecar as a process, an expert map for it, and a look into the file both sides share."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from lanectl.reference.weights import SHAPES
from tests.support.poll import until
from tests.support.reference import BOOT_WITHIN_S, END_WITHIN_S

PATIENT = {"VLLM_EXP_PEER_SPINS": "2000000000"}  # v25's spin limit: hours
HASTY = {"VLLM_EXP_PEER_SPINS": "2000"}  # some 10 ms


def write_map(path: Path, shape: str, cold: int, seed: int = 1) -> Path:
    """Write a map with so many cold experts a layer, drawn and shuffled by the seed. Return its path."""
    dice = random.Random(seed)
    layers = {}
    for layer in range(SHAPES[shape].layers):
        ids = dice.sample(range(SHAPES[shape].experts), SHAPES[shape].experts)
        layers[str(layer)] = {"cold": ids[:cold], "hot": ids[cold:]}
    path.write_text(json.dumps({"layers": layers, "meta": {"n_hot": SHAPES[shape].experts - cold}}))
    return path


def words(path: Path) -> tuple[int, ...]:
    """The file's first eleven words."""
    with path.open("rb") as file:
        return struct.unpack("<11q", file.read(88))


def shared_file(tmp_path: Path) -> Path:
    """A path for the file, in memory where there is such a folder, of this test alone."""
    memory = Path("/dev/shm")
    return (memory if os.access(memory, os.W_OK) else tmp_path) / f"lt-peer-{os.getpid()}-{random.getrandbits(32):08x}"


class ReferenceSidecar:
    """`with ReferenceSidecar(rowmap) as sidecar: …`; tiny unless a shape is given. `sidecar.path` is the file, which is
    removed at the end."""

    def __init__(self, rowmap: Path, *options: str, faults: str = "", path: Path | None = None) -> None:
        self.path = path or shared_file(Path(tempfile.gettempdir()))
        self.rowmap = rowmap
        shape = () if "--shape" in options else ("--shape", "tiny")
        self._command = [
            *(sys.executable, "-m", "lanectl.reference.sidecar"),
            *("--rowmap", str(rowmap), "--shm", str(self.path), *shape, *options),
        ]
        self._environment = {**os.environ, "REFERENCE_FAULTS": faults}
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        until(lambda: self.serving or self.process.poll() is not None, BOOT_WITHIN_S, "the sidecar's boot")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()
        self.path.unlink(missing_ok=True)

    @property
    def serving(self) -> bool:
        return any(re.match("^serving", line) for line in self.lines)

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    @property
    def server_options(self) -> tuple[str, ...]:
        """What a server needs to use this sidecar."""
        return ("--placement", "sidecar", "--rowmap", str(self.rowmap), "--shm", str(self.path))

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{self.process.pid}/stat")
        until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", END_WITHIN_S, "the sidecar stands still")

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def ended(self) -> int:
        """Wait for the end, return the exit code; the whole log has been read then."""
        code = self.process.wait(END_WITHIN_S)
        self._reader.join(END_WITHIN_S)
        return code

    def _read_log(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
