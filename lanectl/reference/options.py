"""Command line options: those that server and sidecar share, and the kinds of numbers."""

from __future__ import annotations

import argparse
import os

from lanectl.reference.peer_words import DEFAULT_PATH, PATH_VARIABLE


def add_model_options(options: argparse.ArgumentParser) -> None:
    """Add what both sides must be given alike."""
    options.add_argument("--seed", type=seed, metavar="N", default=0, help="the weights are made from it")
    options.add_argument("--shape", choices=["tiny", "small"], default="small", help="the size of the model")
    options.add_argument("--rowmap", metavar="FILE", help="the expert map: which experts are hot and which are cold")
    options.add_argument(
        "--shm",
        metavar="PATH",
        default=os.environ.get(PATH_VARIABLE, DEFAULT_PATH),
        help=f"the file that server and sidecar share (default: ${PATH_VARIABLE}, else {DEFAULT_PATH})",
    )


def port(text: str) -> int:
    """Given an option's text, return a port."""
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError("must be 0 (any free one) to 65535")
    return value


def seed(text: str) -> int:
    """Given an option's text, return a seed."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def count(text: str) -> int:
    """Given an option's text, return a number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def factor(text: str) -> float:
    """Given an option's text, return a finite number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value
