"""An image registry on loopback, just large enough to push one image to: only a push gives an image its digest.

Source: OCI distribution specification 1.1, "Pushing" (monolithic and chunked uploads) and "Pulling manifests".
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class _Registry(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blobs: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}  # tag or digest -> (media type, bytes)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Registry

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        kind, ref = self._what()
        if kind == "blobs" and ref in self.server.blobs:
            self._answer(200, self.server.blobs[ref], {"Docker-Content-Digest": ref})
        elif kind == "manifests" and ref in self.server.manifests:
            media_type, data = self.server.manifests[ref]
            self._answer(200, data, {"Content-Type": media_type, "Docker-Content-Digest": _digest(data)})
        else:
            self._answer(200 if self.path == "/v2/" else 404)

    def do_POST(self) -> None:
        upload = uuid.uuid4().hex
        self.server.uploads[upload] = self._body()
        self._answer(202, headers={"Location": f"{urlsplit(self.path).path.rstrip('/')}/{upload}", "Range": "0-0"})

    def do_PATCH(self) -> None:
        _, upload = self._what()
        self.server.uploads[upload] += self._body()
        end = len(self.server.uploads[upload]) - 1
        self._answer(202, headers={"Location": self.path, "Range": f"0-{end}"})

    def do_PUT(self) -> None:
        kind, ref = self._what()
        data = self._body()
        if kind == "manifests":
            stored = (self.headers["Content-Type"], data)
            self.server.manifests[ref] = self.server.manifests[_digest(data)] = stored
            self._answer(201, headers={"Docker-Content-Digest": _digest(data), "Location": self.path})
            return
        digest = parse_qs(urlsplit(self.path).query)["digest"][0]
        whole = self.server.uploads.pop(ref) + data
        if _digest(whole) == digest:
            self.server.blobs[digest] = whole
        self._answer(201 if digest in self.server.blobs else 400, headers={"Docker-Content-Digest": digest})

    def _what(self) -> tuple[str, str]:
        """Return what the path names: ("blobs", digest), ("uploads", id) or ("manifests", tag or digest)."""
        *_, kind, ref = ["", "", *urlsplit(self.path).path.split("/")]
        return kind, ref

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _answer(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *words: Any) -> None:
        pass


@contextmanager
def tiny_registry() -> Iterator[str]:
    """Serve a registry until the block ends; yield its `host:port`."""
    with _Registry() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
