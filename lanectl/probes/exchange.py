"""One HTTP request and its whole answer within one deadline: no redirects, no proxies, no keep-alive.

Standard-library http.client, not requests: only with the socket in our own hands can one deadline cover a whole answer,
header and body, however slowly it drips (probes/deadline.py). Besides, a look that is made 40 times a second, or by
cron, should pay neither for importing requests nor for its session.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from socket import gaierror
from typing import Any
from urllib.parse import quote, urlsplit

from lanectl.core.health import Kind
from lanectl.probes.deadline import DeadlineSocket, connect, left

# /v1/models of a server with many adapters is some 100 KiB; anything beyond this is not an answer to our questions.
MAX_BODY_BYTES = 4 * 1024 * 1024
_AS_IS = "/?&=%:@!$'()*+,;~"  # what a path and query may hold unquoted (RFC 3986, 3.3 and 3.4)


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask. `base_url` is http(s)://host[:port][/prefix]; `api_key` a header-safe secret, never in any text."""

    base_url: str
    api_key: str | None = None
    connect_within_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    location: str
    body: bytes

    def fields(self) -> dict[str, Any]:
        """Return the body's JSON object, {} when it is anything else."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class NoAnswer(Exception):
    """There is no answer to judge: `kind` says how it failed, `connected` whether a connection was made."""

    def __init__(self, kind: Kind, detail: str, *, connected: bool) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.connected = connected


def ask(server: Server, path: str, deadline: float, body: Mapping[str, Any] | None = None) -> Answer:
    """GET `path`, or POST `body` to it as JSON; return the answer, whatever its status.

    `deadline` is of time.monotonic(). Raise `NoAnswer`.
    """
    url = urlsplit(server.base_url)
    secure = url.scheme == "https"
    host = url.hostname or ""
    port = url.port or (http.client.HTTPS_PORT if secure else http.client.HTTP_PORT)
    started = time.monotonic()
    sock = _connect(host, port, min(deadline, started + server.connect_within_s), secure)
    connection = http.client.HTTPConnection(host, port)
    connection.sock = DeadlineSocket(sock, deadline)
    payload = None if body is None else json.dumps(body)
    target = quote(url.path.rstrip("/") + path, safe=_AS_IS)
    try:
        connection.request("GET" if body is None else "POST", target, payload, _headers(server))
        response = connection.getresponse()
        content = response.read(MAX_BODY_BYTES + 1)
        if response.length and len(content) <= MAX_BODY_BYTES:  # a bounded read does not raise this by itself
            raise http.client.IncompleteRead(content, response.length)
    except TimeoutError:
        waited = time.monotonic() - started
        raise NoAnswer(Kind.TIMEOUT, f"{path}: no whole answer within {waited:.1f} s", connected=True) from None
    except (OSError, http.client.IncompleteRead, http.client.RemoteDisconnected) as error:
        raise NoAnswer(Kind.CUT, f"{path}: the connection ended before the answer ({error})", connected=True) from None
    except http.client.HTTPException as error:
        raise NoAnswer(Kind.BAD_ANSWER, f"{path}: not an HTTP answer ({error!r})", connected=True) from None
    finally:
        connection.close()
        sock.close()
    if len(content) > MAX_BODY_BYTES:
        raise NoAnswer(Kind.BAD_ANSWER, f"{path}: the answer is longer than {MAX_BODY_BYTES} bytes", connected=True)
    return Answer(response.status, response.getheader("Location") or "", content)


def _connect(host: str, port: int, deadline: float, secure: bool) -> Any:
    where = f"{host}:{port}"
    try:
        return connect(host, port, left(deadline), ssl.create_default_context() if secure else None)
    except ConnectionRefusedError:
        kind, detail = Kind.REFUSED, f"nothing listens on {where}"
    except TimeoutError:
        kind, detail = Kind.TIMEOUT, f"{where} accepts no connection in time"
    except ssl.SSLError as error:
        kind, detail = Kind.BAD_ANSWER, f"{where}: TLS failed ({error})"
    except gaierror as error:
        kind, detail = Kind.UNREACHABLE, f"{host}: no address ({error.strerror})"
    except ConnectionError as error:
        kind, detail = Kind.CUT, f"{where}: the connection ended at once ({error})"
    except OSError as error:
        kind, detail = Kind.UNREACHABLE, f"{where} cannot be reached ({error.strerror or error})"
    raise NoAnswer(kind, detail, connected=False)


def _headers(server: Server) -> dict[str, str]:
    headers = {"Accept": "application/json", "Content-Type": "application/json", "Connection": "close"}
    if server.api_key:
        headers["Authorization"] = f"Bearer {server.api_key}"
    return headers
