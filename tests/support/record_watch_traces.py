"""Record the counter traces of tests/golden/watch_traces.json from a lane of two real processes.

Run: python -m tests.support.record_watch_traces. Each trace is a list of looks, [seconds, seven words], as the
watchdog makes them; what must be concluded from each is in tests/unit/test_watch_decision.py.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lanectl.core.watch import WORDS
from tests.support import counter_lane_process as words
from tests.support.counter_lane import CounterLane, counter_lane
from tests.support.poll import until
from tests.support.station import SOON_S, local_site

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "watch_traces.json"
LOOK_EVERY_S = 0.1
MS = 1_000_000

Trace = list[tuple[float, list[int]]]


def record(lane: CounterLane, seconds: float, acts: dict[float, Callable[[], None]]) -> Trace:
    """Look for so long; do each act once its second has come."""
    began, found, left = time.monotonic(), [], dict(sorted(acts.items()))
    while (at := time.monotonic() - began) < seconds:
        for due in [due for due in left if due <= at]:
            left.pop(due)()
        found.append((round(at, 3), list(WORDS.unpack(os.pread(lane.counters_fd, WORDS.size, 0)))))
        time.sleep(LOOK_EVERY_S)
    return found


def restart(lane: CounterLane) -> None:
    """Start the server again beside its sidecar; it zeroes the counters."""
    lane.site.engine.kill(lane.server)
    lane.site.engine.start(lane.server)
    until(lambda: lane.word(words.TIMEOUTS) == 0, SOON_S, "the server has zeroed the counters")


def traces(lane: CounterLane) -> dict[str, Trace]:
    """Record every trace, the lane's death last."""
    loaded = {1.0: lambda: lane.set(words.LOADED, 1)}
    unloaded = {4.0: lambda: lane.set(words.LOADED, 0)}
    found = {"idle": record(lane, 5, {})}
    found["load"] = record(lane, 5, loaded | unloaded)
    lane.set(words.CALL_NS, 1200 * MS)  # below the 2 s of a stall; tokens and rows stand still anyway
    found["long prefill"] = record(lane, 9, {1.0: lambda: lane.set(words.LOADED, 1)})
    lane.set(words.CALL_NS, 0)
    found["epoch change"] = record(lane, 5, loaded | {2.5: lambda: restart(lane)})
    lane.set(words.SPIN_NS, 50 * MS)
    found["timeout"] = record(lane, 4, {2.0: lambda: lane.set(words.CALL_NS, 80 * MS)})
    lane.set(words.SPIN_NS, 0)
    lane.set(words.CALL_NS, 0)
    restart(lane)
    found["stall"] = record(lane, 6, {2.0: lambda: lane.signal(lane.sidecar, signal.SIGSTOP)})
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, local_site(Path(folder) / "site") as site, counter_lane(site) as lane:
        lane.start_sidecar()
        lane.start_server()
        found = traces(lane)
    lines = [f"{json.dumps(name)}: {json.dumps(trace, separators=(',', ':'))}" for name, trace in found.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
