"""Break real swaps in every way, see that what is owed is back each time, and write docs/reliability.md from the run.

Run: python -m tests.reliability [--calls N] [--deaths N] [--seed S] [--out FILE]

Without numbers it takes everything: every fault at every call to a real Docker daemon, and a death after every line
that a swap writes, on both engines. With them, a sample spread evenly over faults and swaps. Needs what the engine tier
of the tests needs: Debian and root, and no Docker daemon of a user's own. Exit 1 unless all were survived.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from tests.freezes import kept, put
from tests.support.api_faults import FAULTS
from tests.support.docker_engine import DockerEngine, docker_engine
from tests.support.dying import Death, deaths, die
from tests.support.engine_daemon import Daemon
from tests.support.engine_images import REPOSITORY_ROOT
from tests.support.fault_site import Case, FaultSite
from tests.support.proving import SCENARIOS, Proving, Survived
from tests.support.station import new_docker_site, new_local_site

OUT = REPOSITORY_ROOT / "docs" / "reliability.md"
SAY_EVERY = 20  # trials; each takes a second or two
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """One swap that something was done to. `group`: the row it counts in. `survived` None: it was not."""

    group: str
    scenario: str
    call: str
    text: str
    survived: Survived | None
    why: str = ""


def spread(items: Sequence[T], key: Callable[[T], object], count: int | None, seed: int) -> list[T]:
    """Return `count` of the items, as evenly over their keys as can be (all for None), in their order."""
    if count is None or count >= len(items):
        return list(items)
    groups: dict[object, list[T]] = defaultdict(list)
    for item in random.Random(seed).sample(items, len(items)):
        groups[key(item)].append(item)
    rounds = [group[index] for index in range(len(items)) for group in groups.values() if index < len(group)]
    return sorted(rounds[:count], key=items.index)


def try_all(items: Sequence[T], attempt: Callable[[T], Survived], describe: Callable[[T], Trial]) -> Iterator[Trial]:
    """Attempt each; yield how it went, and say so."""
    for number, item in enumerate(items, start=1):
        trial = describe(item)
        try:
            trial = Trial(trial.group, trial.scenario, trial.call, trial.text, attempt(item))
        except Exception as error:
            trial = Trial(trial.group, trial.scenario, trial.call, trial.text, None, f"{type(error).__name__}: {error}")
            print(f"NOT SURVIVED {trial.text}: {trial.why}", file=sys.stderr)
        if number % SAY_EVERY == 0:
            print(f"{number} of {len(items)}: {trial.text}", file=sys.stderr, flush=True)
        yield trial


def spoiled_calls(folder: Path, count: int | None, seed: int) -> tuple[list[Trial], int]:
    """Return the trials on a daemon of their own, and how many there are in all."""
    daemon = Daemon(folder / "daemon", "reliability").start()
    try:
        site = FaultSite(folder / "proxy", daemon)
        try:
            chosen = spread(site.cases, lambda case: (case.scenario, case.fault), count, seed)
            trials = try_all(chosen, site.prove, _of_a_call)
            return list(trials), len(site.cases)
        finally:
            site.close()
    finally:
        daemon.stop()


def _of_a_call(case: Case) -> Trial:
    return Trial(case.fault, case.scenario, f"{case.call.method} {case.call.route}", str(case), None)


def killed(engine: str, proving: Proving, count: int | None, seed: int) -> tuple[list[Trial], int]:
    """Return the trials of swaps that were killed after a line they wrote, and how many there are in all."""

    def describe(death: Death) -> Trial:
        group = f"{engine}: its guard killed, too" if death.guard_at else f"{engine}: its guard alone"
        return Trial(group, death.scenario, "", f"{engine}: {death}", None)

    try:
        every = [death for scenario in SCENARIOS for death in deaths(proving, scenario)]
        chosen = spread(every, lambda death: (death.scenario, death.guard_at > 0), count, seed)
        return list(try_all(chosen, lambda death: die(proving, death), describe)), len(every)
    finally:
        proving.close()


def report(calls: list[Trial], lines: list[Trial], all_calls: int, all_lines: int, how: str, took_s: float) -> str:
    """Return the document."""
    trials = [*calls, *lines]
    good = [trial for trial in trials if trial.survived is not None]
    return "\n".join(
        [
            "# Reliability",
            "",
            f"Written by `{how}` on {datetime.now(UTC):%Y-%m-%d}, in {took_s / 60:.0f} minutes.",
            "",
            f"survived {len(good)} of {len(trials)}",
            "",
            "Each is one whole swap of containers that start at once, with one thing done to it. Survived means:",
            "exactly what is owed runs and answered a real request, under its own name and restart policy, as the very",
            "container it was; nothing else is left of the swap; its journal is closed and the audit's chain whole.",
            "Where the swap ended DARK or unfinished it had said so, and one `lanectl recover` brought it there.",
            "",
            "A call is known by its kind and whose container it is about; a swap looks at a container many times,",
            "and each of these looks is spoiled in turn. `kill -9` kills lanectl at that call.",
            "",
            "To run it again: `python -m tests.reliability` takes all; `--help` says how to take a sample.",
            "",
            f"## One call to a real Docker daemon spoiled ({len(calls)} of {all_calls})",
            "",
            *_table("fault", list(FAULTS), calls, lambda trial: trial.group),
            "",
            "## The same by call",
            "",
            *_table("call", sorted({trial.call for trial in calls}), calls, lambda trial: trial.call),
            "",
            f"## `kill -9` after a line that the swap wrote, journal or audit ({len(lines)} of {all_lines})",
            "",
            *_table("who restores", sorted({trial.group for trial in lines}), lines, lambda trial: trial.group),
            "",
            *([f"## Not survived\n\n{_failures(trials)}\n"] if len(good) < len(trials) else []),
        ]
    )


def _table(title: str, names: Sequence[str], trials: list[Trial], key: Callable[[Trial], str]) -> Iterator[str]:
    """Yield a row a name: survived of tried by kind of swap, how many were DARK or needed a recover, the seconds."""
    yield f"| {title} | {' | '.join(SCENARIOS)} | DARK first | recover needed | seconds: median, most |"
    yield "|---" * (len(SCENARIOS) + 4) + "|"
    for name in names:
        rows = [trial for trial in trials if key(trial) == name]
        if not rows:
            continue
        cells = [_count([trial for trial in rows if trial.scenario == scenario]) for scenario in SCENARIOS]
        done = [trial.survived for trial in rows if trial.survived is not None]
        seconds = [one.seconds for one in done] or [0.0]
        yield (
            f"| {name} | {' | '.join(cells)} | {sum(one.dark for one in done)} | {sum(one.recovered for one in done)} "
            f"| {statistics.median(seconds):.1f}, {max(seconds):.1f} |"
        )


def _count(trials: list[Trial]) -> str:
    return f"{sum(trial.survived is not None for trial in trials)} of {len(trials)}" if trials else "–"


def _failures(trials: list[Trial]) -> str:
    return "\n".join(f"* {trial.text}: {trial.why[:500]}" for trial in trials if trial.survived is None)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lanectl-reliability-") as name:
        yield Path(name)


def prove(options: argparse.Namespace, engine: DockerEngine) -> int:
    """Run it all, write the document (its section about freezes is kept), return the exit code."""
    began = time.monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        prefix = f"lt-reliability-{time.monotonic_ns():x}-"
        grounds = {
            "local": Proving(folder / "local", new_local_site),
            "docker": Proving(folder / "docker", lambda root: new_docker_site(root, engine, prefix)),
        }
        calls, all_calls = spoiled_calls(folder, options.calls, options.seed)
        lines, all_lines = [], 0
        for name, proving in grounds.items():
            share = None if options.deaths is None else options.deaths // len(grounds)
            trials, every = killed(name, proving, share, options.seed)
            lines += trials
            all_lines += every
    how = " ".join(["python -m tests.reliability", *sys.argv[1:]])
    text = report(calls, lines, all_calls, all_lines, how, time.monotonic() - began)
    freezes = kept(options.out.read_text(encoding="utf-8")) if options.out.exists() else ""
    document = put(text, freezes) if freezes else text.rstrip() + "\n"
    options.out.write_text(document, encoding="utf-8")
    print(next(line for line in text.splitlines() if line.startswith("survived ")))
    return 0 if all(trial.survived for trial in (*calls, *lines)) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, help="so many spoiled calls, spread over faults and swaps; all by default")
    parser.add_argument("--deaths", type=int, help="so many deaths; all by default")
    parser.add_argument("--seed", type=int, default=int(f"{datetime.now(UTC):%Y%m%d}"), help="of a sample: the date")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # an orderly end: daemons are stopped
    with docker_engine() as engine:
        if not engine.private:
            raise SystemExit(f"{engine.source} is not ours to start another engine beside")
        return prove(options, engine)


if __name__ == "__main__":
    sys.exit(main())
