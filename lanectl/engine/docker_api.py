"""One Docker Engine's HTTP API: an explicit endpoint, a deadline for every call, failures told apart by status code.

The SDK's low-level client is the transport (unix sockets, pooled connections). Its methods are not used: they hide the
status (304 says "already so"), share one time-out between a look and a long stop, and find the endpoint by context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from lanectl.engine.docker_stream import CUT_OFF, ByteStream
from lanectl.errors import EngineError, EngineUnknown, NotThere, Unreachable

if TYPE_CHECKING:
    import docker
    import requests

# The newest API version that this code was tried with (Engine 28.5); an older daemon is spoken to in its own.
API_CEILING = (1, 51)
CONNECT_S = 5.0  # a local socket answers in microseconds; a daemon that starts gets a few seconds
LOOK_S = 30.0  # reads answer in about 1 ms; a daemon that is freeing 250 GB of a server's memory has been slow
ACT_S = 120.0  # create and start set up file systems, networks and devices
SHOWN = 200  # characters of an answer that makes no sense
MAX_CONNECTIONS = 32  # one for each thread that may call at once: stops, kills and looks of a lane's few services


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    data: Any


class DockerApi:
    """Calls to the engine at `endpoint` (unix:///path or tcp://host:port), made with the API version both speak.

    Methods raise `Unreachable` when nothing answers there, `EngineUnknown` when a call was sent and no answer came,
    `NotThere` for a 404, and `EngineError` with the engine's own words for any other refusal.
    """

    def __init__(self, endpoint: str) -> None:
        if not endpoint.startswith(("unix://", "tcp://")):
            raise Unreachable(
                f"engine endpoint {endpoint!r}: only unix:///path and tcp://host:port are supported",
                "set engine.endpoint in station.yaml, for example unix:///var/run/docker.sock",
            )
        self.endpoint = endpoint
        self._session = _session(endpoint)
        self.version = min(self._spoken(), API_CEILING)
        self._prefix = f"/v{self.version[0]}.{self.version[1]}"

    def get(self, path: str, *, what: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the decoded answer of a read."""
        return self.said(self._answer("GET", self._prefix + path, what=what, read_s=LOOK_S, params=params), what)

    def said(self, answer: Answer, what: str) -> Any:
        """Return the object or list that an answer must have. Raise `EngineUnknown` when it has none.

        A connection that breaks off within an answer's headers leaves one with a good status, no length and no body.
        """
        if not isinstance(answer.data, dict | list):
            raise EngineUnknown(f"could not {what}: {CUT_OFF} ({self.endpoint}: half an answer)", self._hint)
        return answer.data

    def act(
        self,
        method: str,
        path: str,
        *,
        what: str,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        read_s: float | None = None,
    ) -> Answer:
        """Make one change and return the answer: status 304 says that it was so already. It is waited for `read_s`
        seconds, by default ACT_S."""
        read_s = ACT_S if read_s is None else read_s
        return self._answer(method, self._prefix + path, what=what, read_s=read_s, params=params, body=body)

    def stream(self, path: str, *, what: str, params: Mapping[str, Any]) -> ByteStream:
        """Return an endless answer as it comes, on a connection of its own: closing it hurts no other call."""
        session = _session(self.endpoint)
        try:
            response = self._send(session, "GET", self._prefix + path, what, LOOK_S, params=params, stream=True)
            self._check(response, what)
            return ByteStream(session, response)
        except BaseException:
            session.close()
            raise

    @property
    def _hint(self) -> str:
        return f"is the engine running? docker --host {self.endpoint} info"

    def _spoken(self) -> tuple[int, int]:
        """Return the newest API version the engine speaks."""
        said = self._answer("GET", "/version", what="ask the engine for its version", read_s=LOOK_S).data
        try:
            major, _, minor = said["ApiVersion"].partition(".")
            return int(major), int(minor)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise EngineError(
                f"{self.endpoint} does not answer as a Docker engine does: {str(said)[:SHOWN]!r}",
                f"is engine.endpoint right? docker --host {self.endpoint} version",
            ) from error

    def _answer(
        self,
        method: str,
        path: str,
        *,
        what: str,
        read_s: float,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Answer:
        response = self._send(self._session, method, path, what, read_s, params=params, json=body)
        self._check(response, what)
        return Answer(response.status_code, _decoded(response))

    def _send(
        self, session: docker.APIClient, method: str, path: str, what: str, read_s: float, **options: Any
    ) -> requests.Response:
        import requests

        try:
            return session.request(method, session.base_url + path, timeout=(CONNECT_S, read_s), **options)
        except requests.exceptions.RequestException as error:
            raise self._failure(error, what, read_s) from error

    def _failure(self, error: Exception, what: str, read_s: float) -> EngineError | Unreachable:
        """Tell "never sent" from "sent, and no answer": only the first is safe to repeat blindly."""
        import requests

        hint = self._hint
        refused = _not_connected(error)
        if refused is not None:
            if isinstance(refused, PermissionError):
                hint = f"this user may not open {self.endpoint}: run as root or as a member of the group docker"
            return Unreachable(f"the container engine at {self.endpoint} cannot be reached: {refused}", hint)
        if isinstance(error, requests.exceptions.ReadTimeout):
            return EngineUnknown(f"could not {what}: no answer from {self.endpoint} in {read_s:g} s", hint)
        return EngineUnknown(f"could not {what}: {CUT_OFF} ({self.endpoint}: {error})", hint)

    def _check(self, response: requests.Response, what: str) -> None:
        status = response.status_code
        if status < HTTPStatus.BAD_REQUEST:
            return
        words = _words(response)
        if status == HTTPStatus.NOT_FOUND:
            raise NotThere(f"could not {what}: {words}")
        raise Refusal(status, f"could not {what}: {words}", words)


class Refusal(EngineError):
    """The engine's "no": its HTTP status and its own words."""

    def __init__(self, status: int, message: str, words: str) -> None:
        super().__init__(message)
        self.status = status
        self.words = words


def _session(endpoint: str) -> docker.APIClient:
    """Return the SDK's client on exactly this endpoint: no context, no proxy, no environment."""
    import docker

    try:
        # The version only keeps the constructor from calling the daemon; every path here names its own.
        session = docker.APIClient(
            base_url=endpoint, version="1.44", timeout=int(LOOK_S), max_pool_size=MAX_CONNECTIONS
        )
    except docker.errors.DockerException as error:
        raise EngineError(f"engine endpoint {endpoint!r}: {error}") from error
    session.trust_env = False  # HTTP_PROXY and .netrc are not for the engine
    return session


def _decoded(response: requests.Response) -> Any:
    """Return an answer's JSON value, its text when it is no JSON, None when it is empty."""
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError:
        return response.text


def _words(response: requests.Response) -> str:
    """Return what the engine said: {"message": …} from Docker and Podman, else the text."""
    try:
        return str(response.json()["message"]).strip()
    except (ValueError, KeyError, TypeError):
        return response.text.strip() or f"HTTP {response.status_code}"


def _not_connected(error: BaseException) -> BaseException | None:
    """Return the reason why no connection was made, None when one was.

    The SDK's unix transport reports a failed connect as "connection aborted", so the cause is looked up by type.
    """
    import urllib3

    kinds = (FileNotFoundError, ConnectionRefusedError, PermissionError, NotADirectoryError, BlockingIOError)
    for cause in _causes(error):
        if isinstance(cause, (*kinds, urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)):
            return cause
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it wraps: requests and urllib3 keep causes in args and `reason`."""
    todo, seen = [error], set()
    while todo:
        cause = todo.pop()
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        inner = [*cause.args, getattr(cause, "reason", None), cause.__cause__, cause.__context__]
        todo.extend(item for item in inner if isinstance(item, BaseException))
