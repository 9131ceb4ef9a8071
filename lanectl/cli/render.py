"""The only place that prints. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from lanectl.errors import CandidateFailed, ExitCode, LaneError, Refused, SpecError

FORMAT = 1  # of every JSON object on stdout
NOBODY_READS = (errno.EPIPE, errno.EIO)  # `| head` has ended; the terminal is gone
TAIL_LINES = 15


class Unwritten(LaneError):
    """The result could not be written, to a full disk or a closed stdout: who reads it must not take it for whole."""

    exit_code = ExitCode.FAULT


def prepare() -> None:
    """Make both streams able to take any text, whatever the locale: what they cannot show is escaped.

    Where a stream was closed before the start, nothing else may come to be its descriptor. What is written to a stdout
    that was closed fails as it would have: EBADF.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            setattr(sys, name, os.fdopen(opened, mode))
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def out(text: str = "") -> None:
    """Print a line of the result. That nobody reads any more is no error. Raise `Unwritten` for a full disk, or where
    stdout was closed before the start."""
    _write(sys.stdout, text + "\n")


def err(text: str = "") -> None:
    """Print a line that is not the result."""
    _write(sys.stderr, text + "\n")


def flush() -> None:
    """Write what others printed to stdout, help say. Raise `Unwritten` as `out`."""
    _write(sys.stdout, "")


def emit(value: Mapping[str, Any]) -> None:
    """Print a result as one JSON object with its format version."""
    out(_json({"v": FORMAT, **value}, indent=2))


def emit_line(value: Mapping[str, Any]) -> None:
    """Print one of many results as a JSON object on one line (JSON lines): a log has no end to wait for."""
    out(_json({"v": FORMAT, **value}))


def interactive() -> bool:
    """True when a person can be asked."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except ValueError:  # a closed stream
        return False


def ask(question: str) -> bool:
    """Ask on the terminal; anything but y or yes is no, the end of the input too."""
    _write(sys.stderr, f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: str = "  ") -> list[str]:
    """Given rows of equal length, return them as aligned lines; the columns in `right` are aligned to the right."""
    if not rows:
        return []
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def lines(texts: Sequence[str]) -> None:
    for text in texts:
        out(text)


def failure(error: LaneError, *, as_json: bool) -> None:
    """Print what went wrong and what to run next: text on stderr, or a JSON error object on stdout."""
    if as_json and not isinstance(error, Unwritten):
        try:
            emit({"error": error_json(error), "exit_code": int(error.exit_code)})
            return
        except Unwritten:
            pass  # stderr is what is left
    if isinstance(error, Refused):
        err("refused, nothing was touched:")
    if isinstance(error, Refused | SpecError):
        for problem in error.problems:
            err(f"  {problem}")
    else:
        err(f"error: {error.message}")
    if isinstance(error, CandidateFailed):
        for line in error.tail[-TAIL_LINES:]:
            err(f"  | {line}")
    if error.hint:
        err(f"  -> {error.hint}")


def error_json(error: LaneError) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
    if isinstance(error, Refused | SpecError):
        found["problems"] = [
            {"where": one.where, "path": one.path, "message": one.message, "hint": one.hint} for one in error.problems
        ]
    return found


def _json(value: Mapping[str, Any], indent: int | None = None) -> str:
    import json

    return json.dumps(value, indent=indent, ensure_ascii=False, default=str)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        _silence(stream)
        if stream is sys.stdout and error.errno not in NOBODY_READS:
            raise Unwritten(f"the result could not be written: {error.strerror}") from error
    except ValueError:  # a closed stream
        pass


def _silence(stream: TextIO) -> None:
    """Nobody reads this stream any more: let the rest, and Python's own flush at exit, go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
