"""The readiness ladder as pure decisions: samples and a policy go in, one verdict with a reason code comes out.

Rungs, in order: container running and not restarting; log marker; port answers and our container owns it; health path;
authentication; /v1/models; a real completion. Boot, restore and `lanectl health` all climb this one ladder.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum

from lanectl.core.container import Container, Status
from lanectl.core.serving import Completion, Ready
from lanectl.errors import ExitCode

# How long a server may take to accept a connection and then to answer a rung that generates nothing. Both are one
# look's patience, not the boot's: a look that gets no answer is simply made again until the spec's time-out.
DEFAULT_CONNECT_WITHIN_S = 3.0  # one lost SYN is sent again after 1 s (RFC 6298), two after 3 s
DEFAULT_ANSWER_WITHIN_S = 5.0

# Statuses that say "not now" (RFC 9110, RFC 6585, RFC 8470), besides every 5xx.
_NOT_NOW = frozenset({408, 425, 429})

KILL_BASE = 128  # a process ended by signal N shows exit code 128 + N in every container engine


class Reason(StrEnum):
    """The published reason codes."""

    READY = "READY"
    STARTING = "STARTING"  # not there yet, nothing wrong seen
    EXITED = "EXITED"  # the container ended, whatever its exit code
    RESTARTING = "RESTARTING"
    PAUSED = "PAUSED"
    FATAL_LOG = "FATAL_LOG"  # the log has a line the spec calls fatal
    BOOT_FACT = "BOOT_FACT"  # it serves, but a fact the spec demands of its log does not hold
    FOREIGN_PORT = "FOREIGN_PORT"  # somebody else answers on the port
    MISCONFIGURED = "MISCONFIGURED"  # a redirect, a Host check, a path that is not there
    AUTH = "AUTH"  # 401 or 403
    WRONG_MODEL = "WRONG_MODEL"
    HUNG = "HUNG"  # everything answers, nothing is generated
    STALLED = "STALLED"  # the lane's own counters stand still with work in flight
    UNREACHABLE = "UNREACHABLE"  # time-out, DNS, no route: cannot tell


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """What to ask a server. `base_url` such as http://127.0.0.1:30006. `model` None: the first that /v1/models lists.

    `api_key` is the secret itself; it is sent as a bearer token and appears in no sample. `health` None and `models`
    False leave those rungs out. Deadlines are for a whole answer, however slowly its bytes come.
    """

    base_url: str
    health: str | None = "/health"
    health_status: int = 200
    models: bool = True
    model: str | None = None
    max_model_len: int | None = None
    completion: Completion | None = None
    api_key: str | None = None
    connect_within_s: float = DEFAULT_CONNECT_WITHIN_S
    answer_within_s: float = DEFAULT_ANSWER_WITHIN_S


class Kind(StrEnum):
    """How a rung failed."""

    NONE = ""
    REFUSED = "refused"  # nothing listens
    TIMEOUT = "timeout"  # no answer within the rung's deadline
    UNREACHABLE = "unreachable"  # DNS, no route, no local resources: cannot tell
    CUT = "cut"  # the connection ended before the answer did
    STATUS = "status"  # an HTTP status that is neither a redirect nor about authentication
    REDIRECT = "redirect"
    AUTH = "auth"
    WRONG_MODEL = "wrong_model"
    NO_TOKEN = "no_token"  # a 200 without a generated token
    BAD_ANSWER = "bad_answer"  # not HTTP, not the JSON that was asked for, too long, a certificate that does not hold


class Rung(StrEnum):
    PORT = "port"
    HEALTH = "health"
    AUTH = "auth"
    MODELS = "models"
    COMPLETION = "completion"


@dataclass(frozen=True, slots=True)
class HttpSample:
    """What one climb of the HTTP rungs saw. `failed` is None when every asked rung passed.

    `kind` says how it failed there, `status` is the HTTP status (None: no answer), `detail` one line for a person.
    `model` is the model that answered, `models` those listed; `seconds` the completion's duration.
    """

    failed: Rung | None
    kind: Kind = Kind.NONE
    status: int | None = None
    detail: str = ""
    models: tuple[str, ...] = ()
    model: str | None = None
    seconds: float | None = None


class Owner(StrEnum):
    """Whose process listens on the port."""

    OURS = "ours"
    FOREIGN = "foreign"
    INFERRED = "inferred"  # cannot be read; the port was free before our start
    UNKNOWN = "unknown"  # cannot be read, and nobody looked before the start (a lane that was serving already)


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything seen of one service in one look. None = not looked at, or cannot be told.

    `gone`: the engine says there is no such container. `engine_error`: why the engine could not be asked.
    `restarted`: not the run that the first look saw. `last_words`: the log's own line about a failure.
    """

    container: Container | None = None
    gone: bool = False
    engine_error: str = ""
    restarted: bool = False
    marker_seen: bool | None = None
    fatal_line: str | None = None
    last_words: str = ""
    owner: Owner | None = None
    owner_detail: str = ""
    http: HttpSample | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`final`: waiting longer cannot help. `detail`: one line for a person, in the log's own words where it has any."""

    reason: Reason
    detail: str
    final: bool = False

    @property
    def ready(self) -> bool:
        return self.reason is Reason.READY


def judge(sample: Sample, ready: Ready | None) -> Verdict:
    """Given one look and the spec's readiness, return the verdict: the first rung that does not hold, else READY.

    What was not looked at does not count against the service, with one exception: a service whose readiness is asked
    over HTTP is not ready before HTTP was asked.
    """
    verdict = judge_before_http(sample, ready)
    if verdict is None and ready is not None and ready.speaks_http:
        verdict = _judge_asked(sample)
    if verdict is None:
        return Verdict(Reason.READY, _ready_detail(sample))
    return _with_hint(verdict, sample)


def judge_before_http(sample: Sample, ready: Ready | None) -> Verdict | None:
    """Given one look, return the verdict of the rungs below HTTP (container, log, port owner); None when all hold."""
    return _judge_container(sample) or _judge_log(sample, ready) or _judge_owner(sample)


def judge_http(sample: HttpSample) -> Verdict:
    """Given one climb of the HTTP rungs, return its verdict. Also the whole of `lanectl health URL`."""
    if sample.failed is None:
        return Verdict(Reason.READY, sample.detail)
    reason, final = _http_reason(sample)
    return Verdict(reason, sample.detail, final)


def exit_of(reason: Reason) -> ExitCode:
    """Given a health verdict's reason, return the published exit code of `lanectl health`."""
    if reason is Reason.READY:
        return ExitCode.OK
    return ExitCode.UNREACHABLE if reason is Reason.UNREACHABLE else ExitCode.FAILED


def owner_of(
    listeners: frozenset[int] | None, ours: frozenset[int] | None, *, host_network: bool, port_was_free: bool
) -> Owner:
    """Given who listens (None: cannot be read) and our container's processes, return whose port it is.

    Every listener must be ours: with SO_REUSEPORT a stale server could share the port and answer half the requests.
    A published port of a bridge network has the engine's proxy as its listener: that the engine could start the
    container says that the port was free. Where the listener belongs to another user, it cannot be read; then the
    port having been free before our start has to do, and the right model after.
    """
    if not host_network:
        return Owner.INFERRED
    if listeners is None or ours is None:
        return Owner.INFERRED if port_was_free else Owner.UNKNOWN
    return Owner.OURS if listeners and listeners <= ours else Owner.FOREIGN


def another_run(first: Container, now: Container) -> bool:
    """Given a container as first and as last seen, return whether it was started again in between."""
    return now.restart_count > first.restart_count or bool(
        first.started_at and now.started_at and first.started_at != now.started_at
    )


def describe_exit(container: Container) -> str:
    """Given an ended container, say how it ended. "Out of memory" only where the kernel said so."""
    code = container.exit_code
    if container.oom_killed:
        return f"killed: out of memory (exit code {code})"
    if code is None:
        return "ended, exit code unknown"
    if code > KILL_BASE:
        try:
            return f"killed by {signal.Signals(code - KILL_BASE).name} (exit code {code})"
        except ValueError:
            pass  # 255 and the like: an exit code of the program's own
    return f"exited with code {code}"


def _judge_container(sample: Sample) -> Verdict | None:
    if sample.engine_error:
        return Verdict(Reason.UNREACHABLE, f"the engine cannot be asked: {sample.engine_error}")
    if sample.gone:
        return Verdict(Reason.EXITED, _with_words("the container is gone", sample), final=True)
    container = sample.container
    if container is None:
        return None
    if sample.restarted or container.status is Status.RESTARTING:
        how = f"it ended and was started again ({container.restart_count} restarts counted)"
        return Verdict(Reason.RESTARTING, _with_words(how, sample), final=True)
    match container.status:
        case Status.EXITED | Status.DEAD:
            return Verdict(Reason.EXITED, _with_words(describe_exit(container), sample), final=True)
        case Status.REMOVING:
            return Verdict(Reason.EXITED, "the container is being removed", final=True)
        case Status.CREATED if container.error:
            return Verdict(Reason.EXITED, f"it could not be started: {container.error}", final=True)
        case Status.CREATED:
            return Verdict(Reason.STARTING, "created, not started yet")
        case Status.PAUSED:
            return Verdict(Reason.PAUSED, "the container is paused")
    return None


def _judge_log(sample: Sample, ready: Ready | None) -> Verdict | None:
    if sample.fatal_line is not None:
        return Verdict(Reason.FATAL_LOG, sample.last_words or sample.fatal_line, final=True)
    if ready is not None and ready.log is not None and sample.marker_seen is False:
        return Verdict(Reason.STARTING, f"no log line matches {ready.log!r} yet")
    return None


def _judge_owner(sample: Sample) -> Verdict | None:
    if sample.owner is Owner.FOREIGN:
        return Verdict(Reason.FOREIGN_PORT, sample.owner_detail, final=True)
    return None


def _judge_asked(sample: Sample) -> Verdict | None:
    if sample.http is None:
        return Verdict(Reason.STARTING, sample.owner_detail or "not asked over HTTP yet")
    verdict = judge_http(sample.http)
    return None if verdict.ready else verdict


def _http_reason(sample: HttpSample) -> tuple[Reason, bool]:
    """Return the reason and whether it is final. A deadline the spec itself set for the completion is final."""
    completing = sample.failed is Rung.COMPLETION
    match sample.kind:
        case Kind.REFUSED | Kind.CUT:
            return Reason.STARTING, False
        case Kind.UNREACHABLE:
            return Reason.UNREACHABLE, False
        case Kind.TIMEOUT if sample.failed is Rung.PORT:
            return Reason.UNREACHABLE, False
        case Kind.TIMEOUT | Kind.NO_TOKEN:
            return Reason.HUNG, completing
        case Kind.AUTH:
            return Reason.AUTH, True
        case Kind.WRONG_MODEL:
            return Reason.WRONG_MODEL, True
        case Kind.STATUS if completing and sample.status == 500:
            return Reason.HUNG, False  # an engine that has died behind its server; its exit may follow
        case Kind.STATUS if sample.status is not None and (sample.status >= 500 or sample.status in _NOT_NOW):
            return Reason.STARTING, False
        case Kind.STATUS if sample.status is not None and 200 <= sample.status < 300:
            return Reason.MISCONFIGURED, False  # "202, still loading" may turn into the status that is asked for
    return Reason.MISCONFIGURED, True


def _ready_detail(sample: Sample) -> str:
    if sample.http is not None:
        return sample.http.detail
    return "running" if sample.marker_seen is None else "running, log marker seen"


def _with_words(what: str, sample: Sample) -> str:
    return f"{what}; last words: {sample.last_words}" if sample.last_words else what


def _with_hint(verdict: Verdict, sample: Sample) -> Verdict:
    """Docker's own HEALTHCHECK never decides: a model that loads for ten minutes is "unhealthy" and well."""
    health = sample.container.health if sample.container is not None else None
    if verdict.final or health != "unhealthy":
        return verdict
    return Verdict(verdict.reason, f"{verdict.detail} (its HEALTHCHECK says unhealthy: a hint only)", verdict.final)
