"""How soon a lane whose sidecar stopped is dead, and what the watchdog costs while it lives.

Each run boots a lane of two small processes under load (only the counters matter here), lets its sidecar stay in one
call for ever, and takes the times on the machine's one monotonic clock, from the stall's deadline on. The lane itself
writes down when the call that waits was published, so the deadline (that moment and `stall`) is the true one, not the
watchdog's idea of it.

  kill_after_stall_ms   the server's SIGKILL is sent
  gone_after_stall_ms   the engine says that neither container runs
  cost_percent          processor time of watcher and supervisor together, of one core, under load

The local engine by default; with --docker a Docker engine: the one that answers, else a private one (Debian, root).

Run: python benches/watchdog_trip.py [--runs N] [--json] [--docker]
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import Result, command_line, note, result, show

from lanectl.core.watch import Rule
from tests.support import counter_lane_process as words
from tests.support.counter_lane import CounterLane, counter_lane
from tests.support.docker_engine import docker_engine, remove_containers
from tests.support.engine_packages import EngineUnavailable
from tests.support.poll import until
from tests.support.station import RealSite, docker_site, local_site

RUNS = 30
STALL_S = 2.0  # as the shipped lanes have it
CALL_FOR_EVER_NS = 600 * 10**9
COST_OVER_S = 10.0
COST_RUNS = 3
DEAD_WITHIN_S = 30.0
KILL_MS, GONE_MS, COST_PERCENT = 50, 250, 1.0


@contextmanager
def site_of(docker: bool) -> Iterator[RealSite]:
    """Give a site on the local engine or on a Docker engine."""
    with tempfile.TemporaryDirectory(prefix="lanectl-bench-") as folder:
        if not docker:
            with local_site(Path(folder) / "site") as site:
                yield site
            return
        prefix = f"lanectl-bench-{secrets.token_hex(4)}-"
        with docker_engine() as engine:
            try:
                with docker_site(Path(folder) / "site", engine, prefix) as site:
                    yield site
            finally:
                remove_containers(engine.url, prefix)


def trip_once(site: RealSite) -> tuple[float, float]:
    """Stall a lane; return the milliseconds from the deadline to the kill and to the end of both containers."""
    with counter_lane(site, name=f"lane-{secrets.token_hex(3)}", stall_s=STALL_S) as lane:
        lane.boot()
        lane.load()
        lane.set(words.CALL_NS, CALL_FOR_EVER_NS)
        deadline = lane.deadline(STALL_S)
        until(lambda: not lane.runs(lane.server) and not lane.runs(lane.sidecar), DEAD_WITHIN_S, "the lane is gone")
        gone = time.monotonic()
        record = lane.tripped()
        assert record.rule is Rule.STALL, record
        assert lane.word(words.TIMEOUTS) == 0
    return (record.kills[0].sent - deadline) * 1000, (gone - deadline) * 1000


def cost_once(lane: CounterLane) -> float:
    """Return the processor time of the watchdog's processes over some seconds, in percent of a core."""
    status = lane.status()
    assert status.supervisor is not None
    pids = (status.watcher.pid, status.supervisor.pid)
    began, before = time.monotonic(), sum(map(spent_s, pids))
    time.sleep(COST_OVER_S)
    return 100 * (sum(map(spent_s, pids)) - before) / (time.monotonic() - began)


def spent_s(pid: int) -> float:
    """Return the processor time of all threads of a process (schedstat is in nanoseconds, /proc/PID/stat in ticks)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measure(runs: int, docker: bool) -> dict[str, Result]:
    with site_of(docker) as site:
        pairs = []
        for run in range(runs):
            pairs.append(trip_once(site))
            note(f"\r{run + 1} of {runs}")
        with counter_lane(site, name="cost", stall_s=STALL_S) as lane:
            lane.boot()
            lane.load()
            costs = [cost_once(lane) for _ in range(COST_RUNS)]
    note("\r" + " " * 20 + "\r")
    kill, gone = zip(*pairs, strict=True)
    return {
        "kill_after_stall_ms": result(kill, "ms"),
        "gone_after_stall_ms": result(gone, "ms"),
        "cost_percent": result(costs, "% of a core", digits=2),
    }


def main() -> None:
    parser = command_line(__doc__, RUNS)
    parser.add_argument("--docker", action="store_true", help="on a Docker engine instead of the local one")
    options = parser.parse_args()
    try:
        results = measure(options.runs, options.docker)
    except EngineUnavailable as error:
        raise SystemExit(str(error)) from error
    medians = {case: float(row["median"]) for case, row in results.items()}
    targets = {
        f"kill sent within {KILL_MS} ms of the stall's deadline": medians["kill_after_stall_ms"] <= KILL_MS,
        f"both containers gone within {GONE_MS} ms of it": medians["gone_after_stall_ms"] <= GONE_MS,
        f"at most {COST_PERCENT:g} % of a core": medians["cost_percent"] <= COST_PERCENT,
    }
    show(results, targets, as_json=options.json)


if __name__ == "__main__":
    main()
