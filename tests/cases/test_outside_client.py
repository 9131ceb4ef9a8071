"""The demo's outside client: what it calls the dark time is what a client sees, and it needs nothing of lanectl."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lanectl.actions import outside_client

GAP_S = 0.4
SOON_S = 20.0


class _Server(ThreadingHTTPServer):
    """Answers completions; with `down`, 503."""

    daemon_threads = True
    down = False
    answered = 0


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b"" if server.down else b'{"choices": [{"text": "y"}]}'
        self.send_response(503 if server.down else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        server.answered += not server.down

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[_Server]:
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def _client(port: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-I", "-S", outside_client.__file__, "127.0.0.1", str(port), "demo"]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_the_longest_gap_is_from_a_good_answer_to_the_next_good_answer(server: _Server) -> None:
    with _client(server.server_port) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "serving\n"
        server.down = True
        began = time.monotonic()
        time.sleep(GAP_S)  # the gap itself
        ended = time.monotonic()
        server.down = False
        out, _ = client.communicate(timeout=SOON_S)
    said = json.loads(out)
    assert said["longest_gap_s"] >= ended - began
    assert said["failures"] >= 1
    assert 2 <= said["answers"] <= server.answered  # its end may come between an answer and the counting of it


def test_the_last_gap_counts_too_for_it_waits_for_one_more_answer(server: _Server) -> None:
    with _client(server.server_port) as client:
        assert client.stdout is not None
        assert client.stdin is not None
        assert client.stdout.readline() == "serving\n"
        server.down = True
        client.stdin.close()
        server.down = False
        said = json.loads(client.stdout.read())
        assert client.wait(SOON_S) == 0
    assert 2 <= said["answers"] <= server.answered  # its end may come between an answer and the counting of it


def test_a_server_that_was_never_there_is_told_at_once(server: _Server) -> None:
    server.down = True
    with _client(server.server_port) as client:
        out, _ = client.communicate("", timeout=SOON_S)
    said = json.loads(out)
    assert (said["answers"], said["longest_gap_s"]) == (0, 0.0)


def test_it_imports_the_standard_library_only() -> None:
    tree = ast.parse(Path(outside_client.__file__).read_text())
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name for node in named if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in named if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in modules} <= sys.stdlib_module_names
