"""What the benches share: their command line, interleaved runs, and results as a table or as one JSON object."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A bench is run as a script, so the repository's root, where tests.support brings up engines, is not on its path.
sys.path.append(str(ROOT))
# What a bench starts may keep its bytecode, as an installed lanectl does; else every start would compile it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

Result = dict[str, float | int | str]


def command_line(doc: str | None, runs: int) -> argparse.ArgumentParser:
    """Given a bench's docstring and its usual number of runs, return its parser with --runs and --json."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=runs, help=f"runs of each case ({runs})")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    return parser


def interleaved(cases: Mapping[str, Callable[[], float]], runs: int) -> dict[str, list[float]]:
    """Run every case once, then every case again, and so on: what disturbs the machine disturbs all of them alike."""
    values: dict[str, list[float]] = {name: [] for name in cases}
    for run in range(runs):
        for name, measure in cases.items():
            values[name].append(measure())
            note(f"\r{run + 1} of {runs}: {name:<20}")
    note("\r" + " " * 40 + "\r")
    return values


def note(text: str) -> None:
    """Say how far it is, to a person who watches."""
    if sys.stderr.isatty():
        print(text, end="", file=sys.stderr, flush=True)


def result(values: Sequence[float], unit: str, digits: int = 1) -> Result:
    """Given a case's values, return them in a few numbers."""
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "n": len(values),
        "unit": unit,
    }


def show(results: Mapping[str, Result], targets: Mapping[str, bool], *, as_json: bool) -> None:
    """Print the results; beside the table, each target in words and whether it is met, and how busy the machine was."""
    if as_json:
        print(json.dumps(results))
        return
    width = max(map(len, results))
    print(f"{'case':<{width}} {'median':>9} {'min':>9} {'max':>9} {'n':>4}  unit")
    for case, row in results.items():
        print(f"{case:<{width}} {row['median']:>9} {row['min']:>9} {row['max']:>9} {row['n']:>4}  {row['unit']}")
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'} {target}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
