"""The client that benches/dark_time.py measures with: what it calls gone was gone, all of it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.engine_images import REPOSITORY_ROOT
from tests.support.free_ports import free_ports

PROBER = REPOSITORY_ROOT / "benches" / "prober.py"
PAUSE_S = 0.002  # between two of its questions
GONE_S = 0.2
BUSY_S = 0.1


@contextmanager
def server(port: int, name: str, busy_s: float = 0.0) -> Iterator[None]:
    """Serve GET /health with this body; for the first `busy_s` seconds with 503."""
    ready_at = time.monotonic() + busy_s

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if time.monotonic() >= ready_at else 503)
            self.send_header("Content-Length", str(len(name)))
            self.end_headers()
            self.wfile.write(name.encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as serving:
        threading.Thread(target=serving.serve_forever, args=(0.005,), daemon=True).start()
        try:
            yield
        finally:
            serving.shutdown()


def gone_for(busy_s: float, gap_s: float) -> tuple[float, float, float]:
    """Let one server follow another; return the seconds the prober saw, and the least and the most it may have seen."""
    port = free_ports(1)[0]
    prober = subprocess.Popen([sys.executable, "-I", PROBER, str(port)], stdout=subprocess.PIPE, text=True)
    try:
        assert prober.stdout is not None
        with server(port, "a"):
            assert prober.stdout.readline() == "asking\n"
            still_there = time.monotonic()
        gone = time.monotonic()
        threading.Event().wait(gap_s)
        back = time.monotonic() + busy_s
        with server(port, "b", busy_s):
            seen = float(prober.stdout.readline()) / 1000
        over = time.monotonic()
        assert prober.wait(10) == 0
    finally:
        prober.kill()
        prober.wait()
    return seen, back - gone - PAUSE_S, over - still_there


def test_a_gap_between_two_servers_is_seen_whole() -> None:
    seen, least, most = gone_for(0.0, GONE_S)
    assert GONE_S - PAUSE_S <= least <= seen <= most


def test_a_server_that_answers_503_is_not_back_yet() -> None:
    seen, least, most = gone_for(BUSY_S, 0.0)
    assert BUSY_S - PAUSE_S <= least <= seen <= most
