"""How soon production is on its way back after `kill -9` of lanectl, with nothing left but the guard.

Each run starts a real `lanectl swap`, waits until production is stopped and the candidate boots, and kills lanectl.
Both numbers count from the kill to a record that the guard writes, on the machine's one monotonic clock:

  awake         the guard holds the lock and has taken the swap up (the `resumed` record)
  first_action  it has looked at the engine, knows what to do, and begins to do it: the first call that changes
                something, the stop of the candidate, is made as soon as this record is durable

The local engine by default; with --docker a Docker engine: the one that answers, else a private one (Debian, root).

Run: python benches/guard_latency.py [--runs N] [--json] [--docker]
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import Result, command_line, note, result, show

from lanectl.core.journal import Kind, Record
from lanectl.store.journal import load, records
from tests.support.docker_engine import docker_engine, remove_containers
from tests.support.engine_packages import EngineUnavailable
from tests.support.poll import until
from tests.support.station import RealSite, docker_site, local_site

RUNS = 50
UNIT = "ms"
BOOTING = "ready:server"  # the step in which lanectl is killed: production is stopped, the candidate boots
BOOT_WITHIN_S = 60.0
RESTORED_WITHIN_S = 120.0
MEDIAN_MS, WORST_MS = 300, 1000


@contextmanager
def site_of(docker: bool) -> Iterator[RealSite]:
    """Give a site on the local engine or on a Docker engine."""
    with tempfile.TemporaryDirectory(prefix="lanectl-bench-") as folder:
        if not docker:
            with local_site(Path(folder)) as site:
                yield site
            return
        prefix = f"lanectl-bench-{secrets.token_hex(4)}-"
        with docker_engine() as engine:
            try:
                with docker_site(Path(folder), engine, prefix) as site:
                    yield site
            finally:
                remove_containers(engine.url, prefix)


def kill_once(site: RealSite) -> tuple[float, float]:
    """Kill lanectl in a swap; return the milliseconds until the guard was awake and until its first action."""
    before = set(site.station().state.swap_ids())
    begun = site.begin("swap", "candidate", "--yes")
    try:
        path = until(lambda: _new_journal(site, before), BOOT_WITHIN_S, "the swap's journal")
        until(lambda: _first(records(path), Kind.BEGIN, BOOTING), BOOT_WITHIN_S, "the candidate's boot")
        killed = time.monotonic()
        begun.process.kill()
    finally:
        begun.process.kill()
        begun.process.wait()
    until(lambda: load(path).closed, RESTORED_WITHIN_S, "the guard's restore")
    journal = records(path)
    resumed = _first(journal, Kind.RESUMED)
    assert resumed is not None
    action = _first(journal[resumed.seq :], Kind.BEGIN)
    assert action is not None
    return (resumed.mono - killed) * 1000, (action.mono - killed) * 1000


def _new_journal(site: RealSite, before: set[str]) -> Path | None:
    """Return the path of a swap's journal that was not there before, once it is opened."""
    state = site.station().state
    paths = [state.journal(swap) for swap in state.swap_ids() if swap not in before]
    return next((path for path in paths if path.exists() and path.stat().st_size), None)


def _first(journal: tuple[Record, ...], kind: Kind, step: str = "") -> Record | None:
    return next((one for one in journal if one.kind is kind and step in ("", one.step)), None)


def measure(runs: int, docker: bool) -> dict[str, Result]:
    with site_of(docker) as site:
        site.produce()
        site.lane("candidate", faults="boot-delay=300", ready={"timeout": "300s"})
        pairs = []
        for run in range(runs):
            pairs.append(kill_once(site))
            note(f"\r{run + 1} of {runs}")
        note("\r" + " " * 20 + "\r")
    awake, action = zip(*pairs, strict=True)
    return {"awake": result(awake, UNIT), "first_action": result(action, UNIT)}


def main() -> None:
    parser = command_line(__doc__, RUNS)
    parser.add_argument("--docker", action="store_true", help="on a Docker engine instead of the local one")
    options = parser.parse_args()
    try:
        results = measure(options.runs, options.docker)
    except EngineUnavailable as error:
        raise SystemExit(str(error)) from error
    median, worst = float(results["first_action"]["median"]), float(results["first_action"]["max"])
    targets = {
        f"first action within {MEDIAN_MS} ms (median)": median <= MEDIAN_MS,
        f"first action within {WORST_MS} ms (worst of {options.runs})": worst <= WORST_MS,
    }
    show(results, targets, as_json=options.json)


if __name__ == "__main__":
    main()
