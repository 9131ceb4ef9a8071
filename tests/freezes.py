"""Freeze a lane's sidecar at random moments under load, and write what clients were told into docs/reliability.md.

Run: python -m tests.freezes [--each N] [--seed S] [--out FILE]

The lane is a twin of v25 on the local engine with a stall bound of 0.3 s; each way of freezing is tried N times. The
section it writes stands between two markers, so that the rest of the document is left as it is. Exit 1 unless not one
wrong token reached a client.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.support.engine_images import REPOSITORY_ROOT
from tests.support.frozen import FREEZES, LATEST_S, STALL_S, FrozenLane
from tests.support.station import new_local_site

OUT = REPOSITORY_ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- freezes -->", "<!-- /freezes -->"
EACH = 100  # five ways: 500 freezes, each some two seconds


@dataclass(frozen=True)
class Row:
    """What one way of freezing led to. `wrong`: answers that were neither the unfrozen lane's nor cut."""

    way: str
    freezes: int
    whole: int
    cut: int
    wrong: int


def try_way(folder: Path, way: str, each: int, seed: int) -> Row:
    """Freeze a lane of its own so many times in one way, a person starting it again after each trip."""
    dice = random.Random(f"{seed} {way}")
    whole = cut = wrong = 0
    lane = FrozenLane(new_local_site(folder / way.replace(" ", "-")))
    try:
        for number in range(each):
            if number:
                lane.again()
            answers = lane.frozen(FREEZES[way], after_s=dice.uniform(0, LATEST_S))
            wrong += sum(text != lane.expected[prompt] for prompt, texts in answers.texts.items() for text in texts)
            whole, cut = whole + answers.whole, cut + answers.cut
            if lane.site.station().production().tripped is None:
                raise AssertionError(f"no trip is recorded after {way}")
    finally:
        lane.close()
    print(f"{way}: {each} freezes, {whole} whole answers, {cut} cut, {wrong} wrong", file=sys.stderr, flush=True)
    return Row(way, each, whole, cut, wrong)


def section(rows: list[Row], how: str, took_s: float) -> str:
    """Return the document's section."""
    freezes, wrong = sum(row.freezes for row in rows), sum(row.wrong for row in rows)
    table = [f"| {row.way} | {row.freezes} | {row.whole} | {row.cut} | {row.wrong} |" for row in rows]
    return "\n".join(
        [
            BEGIN,
            "## A sidecar frozen under load",
            "",
            f"Written by `{how}` on {datetime.now(UTC):%Y-%m-%d}, in {took_s / 60:.0f} minutes.",
            "",
            f"{freezes} freezes, {wrong} wrong answers.",
            "",
            f"A twin of v25 on the local engine, a stall bound of {STALL_S:g} s, three clients asking all the time.",
            "Its sidecar, or the file both sides share, is frozen at a random moment. A whole answer is the unfrozen",
            "lane's, token for token, or it counts as wrong; cut: the connection ended or was refused. After each",
            "trip nothing runs until `lanectl restart`.",
            "",
            "| frozen by | freezes | whole answers | cut | wrong |",
            "|---|---|---|---|---|",
            *table,
            END,
        ]
    )


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
    parser.add_argument("--each", type=int, default=EACH, help=f"freezes in each way ({EACH})")
    parser.add_argument("--seed", type=int, default=int(f"{datetime.now(UTC):%Y%m%d}"), help="the date by default")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lanectl-freezes-") as name:
        rows = [try_way(Path(name), way, options.each, options.seed) for way in FREEZES]
    how = " ".join(["python -m tests.freezes", *sys.argv[1:]])
    before = options.out.read_text(encoding="utf-8") if options.out.exists() else "# Reliability\n"
    options.out.write_text(put(before, section(rows, how, time.monotonic() - began)), encoding="utf-8")
    return 0 if all(row.wrong == 0 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
