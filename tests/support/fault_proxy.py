"""A unix socket between lanectl and a real Docker daemon: it passes everything on, and spoils the one call it is told.

Calls are known by method, route and whose container they are about, and by their count: "POST /containers/cand/start
#1". So the same call can be spoiled again in another swap, whatever ids and times are. Threads and standard library.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.engine_api import call as ask
from tests.support.engine_daemon import Daemon
from tests.support.http_wire import BODILESS, LOOK_EVERY_S, UPGRADED, Closed, Head, Wire, is_gone

BACKLOG = 64
# A hang ends when the client gives up; this bounds it for a client that has no deadline.
LONGEST_HANG_S = 30.0
_VERSION = re.compile(r"^/v1\.\d+")
_CONTAINER = re.compile(r"^/containers/([^/]+)(?=/|$)")
_IMAGE = re.compile(r"^/images/(.+?)(?=/json$|/tag$|$)")
# A swap's own part of a container's name; a probe's pid and random part.
_OF_THIS_SWAP = re.compile(r"(\.candidate|\.parked)\..*|(lanectl-cdi-probe)-.*")
NOT_CONTAINERS = ("json", "create", "prune")


@dataclass(frozen=True, order=True)
class Call:
    """One kind of call, and the how many-th of its kind."""

    method: str
    route: str
    count: int

    def __str__(self) -> str:
        return f"{self.method} {self.route} #{self.count}"


@dataclass
class Exchange:
    """One call under way: what a fault can do with it. What it does not answer is cut off."""

    proxy: FaultProxy
    call: Call
    pid: int
    request: bytes
    client: Wire
    upstream: list[Wire]

    def forward(self) -> bytes:
        """Have the daemon do it; return its answer (of an endless one, the head). Empty when it gave none."""
        answer = bytearray()
        with contextlib.suppress(Closed):
            head = self._ask()
            answer += head.raw
            if not head.chunked or not self.call.route.endswith("/logs"):
                for piece in self._body(head):
                    answer += piece
        return bytes(answer)

    def pass_on(self) -> bool:
        """Have the daemon do it and pass its answer on as it comes; return whether the connection can be used again."""
        try:
            head = self._ask()
            self.client.socket.sendall(head.raw)
            if head.first[1] == str(UPGRADED):
                self._tunnel()
                return False
            for piece in self._body(head):
                self.client.socket.sendall(piece)
        except (Closed, OSError):
            return False
        return head.length is not None or head.chunked or int(head.first[1]) in BODILESS

    def reply(self, status: int, message: str) -> None:
        """Answer in the daemon's place."""
        body = json.dumps({"message": message}).encode()
        head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with contextlib.suppress(OSError):
            self.client.socket.sendall(head.encode() + body)

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.client.socket.sendall(data)

    def await_giving_up(self) -> None:
        """Wait until the client has closed its connection."""
        for _ in range(int(LONGEST_HANG_S / LOOK_EVERY_S)):
            if self.proxy.over.wait(LOOK_EVERY_S) or is_gone(self.client.socket):
                return

    def _ask(self) -> Head:
        if not self.upstream:
            self.upstream.append(self.proxy.connect(self.client.socket))
        wire = self.upstream[0]
        try:
            wire.socket.sendall(self.request)
            return wire.head()
        except (OSError, Closed) as error:
            raise Closed from error

    def _body(self, head: Head) -> Iterable[bytes]:
        if self.call.method == "HEAD" or int(head.first[1]) in BODILESS:
            return []
        pieces = self.upstream[0].body(head, to_the_end=True)
        return self._learning(pieces) if self.call.route == "/containers/create" else pieces

    def _learning(self, pieces: Iterable[bytes]) -> list[bytes]:
        """A creation's answer names the container's id."""
        body = list(pieces)
        with contextlib.suppress(ValueError, KeyError, IndexError):
            text = b"".join(body)
            found = json.loads(text[text.index(b"{") : text.rindex(b"}") + 1])
            name = parse_qs(urlsplit(self.request.split(b" ", 2)[1].decode()).query)["name"][0]
            self.proxy.names[found["Id"]] = name
        return body

    def _tunnel(self) -> None:
        upstream = self.upstream[0]
        back = threading.Thread(target=_pump, args=(self.client, upstream.socket), daemon=True)
        back.start()
        _pump(upstream, self.client.socket)


# What is done with the spoiled call; true when the client's connection can be used again, else it is cut.
Fault = Callable[[Exchange], bool | None]


@dataclass
class FaultProxy:
    """Listens at `url`, in `folder`, for what is meant for `daemon`."""

    folder: Path
    daemon: Daemon
    names: dict[str, str] = field(default_factory=dict)  # container id -> name
    calls: list[Call] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._path = self.folder / "proxy.sock"
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._open: set[socket.socket] = set()
        self._spoil: Call | None = None
        self._fault: Fault = Exchange.pass_on
        self._victim: int | None = None
        self._up = threading.Event()
        self._up.set()
        self._striking = threading.Event()
        self._striking.set()
        self.struck = False
        self._listen()

    @property
    def url(self) -> str:
        return f"unix://{self._path}"

    def begin(self, spoil: Call | None = None, fault: Fault | None = None) -> None:
        """Count calls anew and spoil this one, once. Calls of other processes than the victim's are not counted: it is
        the first one that calls, unless `watch` names it."""
        self.release()
        with self._lock:
            self.over = threading.Event()
            self.calls = []
            self._counts = Counter()
            self._victim = None
            self._spoil, self._fault, self.struck = spoil, fault or Exchange.pass_on, False
        listed = ask(self.daemon.url, "GET", "/containers/json?all=1")
        self.names = {one["Id"]: one["Names"][0].lstrip("/") for one in listed}

    def watch(self, pid: int) -> None:
        """Count the calls of this process only."""
        self._victim = pid

    def release(self) -> None:
        """Let everything that hangs end, and wait until the fault is over: a daemon that restarts is back then."""
        self.over.set()
        self._striking.wait()

    def away(self, meanwhile: Callable[[], object]) -> None:
        """Be gone while this happens: all connections are cut, and there is no socket to connect to."""
        self._stop_listening()
        self._cut_all()
        try:
            meanwhile()
        finally:
            self._listen()

    def held(self, waiting: Wire, meanwhile: Callable[[], object]) -> None:
        """Be there and silent while this happens, as a socket that systemd listens on for a daemon that starts. All
        connections but this one, which waits in the socket, are the dead daemon's and end with it."""
        self._up.clear()
        self._cut_all(spare=waiting.socket)
        try:
            meanwhile()
        finally:
            self._up.set()

    def close(self) -> None:
        self.release()
        self._stop_listening()
        self._cut_all()

    def connect(self, client: socket.socket) -> Wire:
        """Connect to the daemon; refused is passed on as a cut connection."""
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(self.daemon.url.removeprefix("unix://"))
        except OSError as error:
            sock.close()
            raise Closed from error
        self._open.add(sock)
        return Wire(sock, beside=client)

    def _listen(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen(BACKLOG)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _stop_listening(self) -> None:
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _cut_all(self, spare: socket.socket | None = None) -> None:
        for sock in tuple(self._open):
            if sock is not spare:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._open.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        pid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        wire, upstream = Wire(client), list[Wire]()
        try:
            while self._serve_one(wire, upstream, pid):
                pass
        except Closed:
            pass
        finally:
            for sock in (client, *(one.socket for one in upstream)):
                self._open.discard(sock)
                sock.close()

    def _serve_one(self, client: Wire, upstream: list[Wire], pid: int) -> bool:
        """Serve one call; return whether the connection can be used again."""
        head = client.head()
        request = head.raw + b"".join(client.body(head, to_the_end=False))
        self._up.wait()
        method, target, _ = head.first
        with self._lock:
            call = self._known(method, self.route(target), pid)
            strikes = not self.struck and call == self._spoil
            if strikes:
                self.struck = True
                self._striking.clear()
        exchange = Exchange(self, call, pid, request, client, upstream)
        if not strikes:
            return exchange.pass_on()
        try:
            return bool(self._fault(exchange))
        finally:
            self._striking.set()

    def _known(self, method: str, route: str, pid: int) -> Call:
        if self._victim is None:
            self._victim = pid
        if pid != self._victim:
            return Call(method, route, 0)
        self._counts[method, route] += 1
        call = Call(method, route, self._counts[method, route])
        self.calls.append(call)
        return call

    def route(self, target: str) -> str:
        """Given a request's target, return its route, with a container's plain name in the place of its id or name."""
        path = _VERSION.sub("", urlsplit(target).path)
        found = _CONTAINER.match(path)
        if found and found[1] not in NOT_CONTAINERS:
            name = unquote(found[1])
            name = _OF_THIS_SWAP.sub(r"\1\2", self.names.get(name, name))
            return f"/containers/{name}{path[found.end() :]}"
        image = _IMAGE.match(path)
        return f"/images/IMAGE{path[image.end() :]}" if image else path


def _pump(source: Wire, sink: socket.socket) -> None:
    for piece in source.rest():
        try:
            sink.sendall(piece)
        except OSError:
            return
