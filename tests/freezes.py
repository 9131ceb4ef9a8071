"""Freeze a lane's sidecar at random moments under load, and write what clients were told into docs/reliability.md.

Run: python -m tests.freezes [--each N] [--engine local|docker] [--seed S] [--out FILE]

The lane is a twin of v25 with a stall bound of 0.3 s, on the local engine and on a real Docker engine; each way of
freezing is tried N times on each. The section it writes stands between two markers, so that the rest of the document is
left as it is; it is written after each way, so that a run that was ended says what it did. Exit 1 unless not one wrong
token reached a client.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.support.docker_engine import docker_engine, remove_containers
from tests.support.engine_images import REPOSITORY_ROOT
from tests.support.engine_packages import EngineUnavailable
from tests.support.freeze_ways import DOCKER, LOCAL, Tally, freeze_often
from tests.support.frozen import STALL_S, FrozenLane
from tests.support.station import docker_site, local_site

OUT = REPOSITORY_ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- freezes -->", "<!-- /freezes -->"
EACH = 40  # seven ways on the local engine and nine on Docker: 640 freezes, each some one and a half seconds
WAYS = {"local": LOCAL, "docker": DOCKER}


@dataclass(frozen=True)
class Row:
    """What one way of freezing on one engine led to."""

    engine: str
    way: str
    tally: Tally


def try_way(folder: Path, engine: str, way: str, each: int, seed: int) -> Row:
    """Freeze a lane of its own so many times in one way."""
    dice = random.Random(f"{seed} {engine} {way}")
    with new_lane(folder / engine / way.replace(" ", "-").replace(",", ""), engine) as lane:
        tally = freeze_often(lane, WAYS[engine], [way] * each, dice)[way]
    said = f"{tally.freezes} freezes, {tally.trips} trips, {tally.whole} whole answers, {tally.cut} cut"
    print(f"{engine}, {way}: {said}, {len(tally.wrong)} wrong, {tally.missed} missed", file=sys.stderr, flush=True)
    for wrong in tally.wrong:
        print(f"  wrong: {wrong}", file=sys.stderr, flush=True)
    return Row(engine, way, tally)


@contextmanager
def new_lane(folder: Path, engine: str) -> Iterator[FrozenLane]:
    """Give a lane that serves on this engine. Raise EngineUnavailable."""
    with ExitStack() as stack:
        if engine == "local":
            lane = FrozenLane(stack.enter_context(local_site(folder)))
        else:
            real = stack.enter_context(docker_engine())
            prefix = f"lt-{secrets.token_hex(4)}-"
            stack.callback(remove_containers, real.url, prefix)
            lane = FrozenLane(stack.enter_context(docker_site(folder, real, prefix)), real.url)
        stack.callback(lane.close)
        yield lane


def section(rows: list[Row], how: str, took_s: float) -> str:
    """Return the document's section."""
    freezes = sum(row.tally.freezes for row in rows)
    under_way = sum(row.tally.under_way for row in rows)
    wrong = sum(len(row.tally.wrong) for row in rows)
    return "\n".join(
        [
            BEGIN,
            "## A sidecar frozen under load",
            "",
            f"Written by `{how}` on {datetime.now(UTC):%Y-%m-%d}, in {took_s / 60:.0f} minutes.",
            "",
            f"{freezes} freezes in the middle of {under_way} answers, {wrong} wrong answers.",
            "",
            f"A twin of v25 with a stall bound of {STALL_S:g} s, three clients asking all the time, one of them for",
            "streams. Its sidecar, or the file both sides share, is frozen at a random moment. A whole answer is the",
            "unfrozen lane's, letter for letter, or it counts as wrong; cut: the connection ended or was refused, and",
            "what came of a stream until then is how the unfrozen lane's answer begins, or it counts as wrong. After",
            "each trip nothing runs until `lanectl restart`. A sidecar that is only slow need not trip; it is as fast",
            "as before once every client had an answer from it.",
            "",
            "| engine | frozen by | freezes | trips | answers under way | whole answers | cut | wrong |",
            "|---|---|---|---|---|---|---|---|",
            *map(_line, rows),
            END,
        ]
    )


def _line(row: Row) -> str:
    tally = row.tally
    numbers = (tally.freezes, tally.trips, tally.under_way, tally.whole, tally.cut, len(tally.wrong))
    return f"| {row.engine} | {row.way} | {' | '.join(map(str, numbers))} |"


def put(document: str, text: str) -> str:
    """Given the document, return it with the section in its place, at the end if it has none yet."""
    if BEGIN in document and END in document:
        return document[: document.index(BEGIN)] + text + document[document.index(END) + len(END) :]
    return document.rstrip() + "\n\n" + text + "\n"


def kept(document: str) -> str:
    """Given the document, return its section, "" when it has none."""
    if BEGIN not in document or END not in document:
        return ""
    return document[document.index(BEGIN) : document.index(END) + len(END)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=EACH, help=f"freezes in each way on each engine ({EACH})")
    parser.add_argument("--engine", choices=list(WAYS), help="on this engine only")
    parser.add_argument("--seed", type=int, default=int(f"{datetime.now(UTC):%Y%m%d}"), help="the date by default")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    began, rows = time.monotonic(), list[Row]()
    how = " ".join(["python -m tests.freezes", *sys.argv[1:]])
    wanted = [(engine, way) for engine in WAYS if options.engine in (None, engine) for way in WAYS[engine]]
    with tempfile.TemporaryDirectory(prefix="lanectl-freezes-") as name:
        for engine, way in wanted:
            try:
                rows.append(try_way(Path(name), engine, way, options.each, options.seed))
            except EngineUnavailable as error:
                print(f"the {engine} engine: {error}", file=sys.stderr)
                return 1
            before = options.out.read_text(encoding="utf-8") if options.out.exists() else "# Reliability\n"
            options.out.write_text(put(before, section(rows, how, time.monotonic() - began)), encoding="utf-8")
    return 1 if any(row.tally.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
