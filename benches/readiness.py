"""How late lanectl notices: that a server became ready, that it stopped loading, that it died while booting.

Real processes under the local engine; the server writes down when it could have answered (CLOCK_MONOTONIC is one
clock for the whole machine). Cases: `ready` the port opens and everything answers; `loaded` the port is open and
/health turns from 503 to 200; `exited` the process ends while booting.

Run: python benches/readiness.py [--runs N] [--json]
"""

from __future__ import annotations

import socket
import sys
import tempfile
import time
from pathlib import Path

from bench import Result, command_line, result, show

from lanectl.actions.ready import Served, wait_ready
from lanectl.clock import SystemClock
from lanectl.core.container import CreateArgs
from lanectl.core.lane import Completion, Ready, Service
from lanectl.engine.environment import reference
from lanectl.engine.local import LocalEngine
from lanectl.errors import CandidateFailed
from lanectl.probes.http import HttpProber

RUNS = 20
UNIT = "ms"
WITHIN_MS = 50  # median of what becomes ready
MODEL = "bench"
CASES = ("ready", "loaded", "exited")
SHORTEST_BOOT_S = 0.3  # the wait must be well under way; each run adds a few ms, so as not to keep step with the looks
STEP_S = 0.0037

SERVER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
case, port, boot_s, mark = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
def note():
    open(mark, "w").write(str(time.monotonic()))
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/health":
            return self.answer({}, 200 if time.monotonic() >= ready_at else 503)
        self.answer({"data": [{"id": "bench"}]})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"choices": [{"text": "x"}], "usage": {"completion_tokens": 1}})
    def answer(self, body, status=200):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    def log_message(self, *_):
        pass
print("booting", flush=True)
ready_at = time.monotonic() + boot_s
if case != "loaded":
    time.sleep(boot_s)
if case == "exited":
    note()
    sys.exit(0)
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
if case == "loaded":
    open(mark, "w").write(str(ready_at))
else:
    note()
server.serve_forever()
"""


def late_ms(engine: LocalEngine, image: str, case: str, boot_s: float, folder: Path) -> float:
    """Boot one server and return how much later than it happened the wait was over."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mark = folder / "mark"
    words = [sys.executable, "-I", "-S", "-u", "-c", SERVER, case, str(port), str(boot_s), str(mark)]
    host = {"NetworkMode": "host", "IpcMode": "host"}
    container = engine.create(CreateArgs("bench", {"Image": image, "Entrypoint": words, "HostConfig": host}))
    ready = Ready(health="/health", models=True, completion=Completion(1, 10.0), timeout_s=30.0)
    try:
        engine.start(container)
        try:
            wait_ready(
                engine=engine,
                prober=HttpProber(),
                clock=SystemClock(),
                container_id=container,
                service=Service("server", "bench", image, ready=ready),
                served=Served("127.0.0.1", port, MODEL, None, None),
                port_was_free=True,
                check=lambda: None,
                progress=lambda text: None,
                deadline=None,
            )
        except CandidateFailed:
            if case != "exited":
                raise
        return (time.monotonic() - float(mark.read_text())) * 1000
    finally:
        engine.remove(container)
        mark.unlink(missing_ok=True)


def measure(runs: int) -> dict[str, Result]:
    results = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        environment = folder / "environment"
        environment.mkdir()
        (environment / "README").write_text("what the bench's services are made from\n")
        engine = LocalEngine(folder / "state", [])
        for case in CASES:
            boots = [SHORTEST_BOOT_S + run * STEP_S for run in range(runs)]
            late = [late_ms(engine, reference(environment), case, boot_s, folder) for boot_s in boots]
            results[case] = result(late, UNIT)
    return results


def main() -> None:
    options = command_line(__doc__, RUNS).parse_args()
    results = measure(options.runs)
    median = {case: float(row["median"]) for case, row in results.items()}
    targets = {f"{case} is noticed within {WITHIN_MS} ms": median[case] <= WITHIN_MS for case in ("ready", "loaded")}
    show(results, targets, as_json=options.json)


if __name__ == "__main__":
    main()
