"""The readiness ladder as pure decisions: samples and a policy go in, one verdict with a reason code comes out.

Rungs, in order: container running and not restarting; log marker; port answers and our container owns it; health path;
authentication; /v1/models; a real completion. Boot, restore and `lanectl health` all climb this one ladder.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lanectl.core.container import Container
from lanectl.core.lane import Completion, Ready


class Reason(StrEnum):
    """The published reason codes."""

    READY = "READY"
    STARTING = "STARTING"  # not there yet, nothing wrong seen
    EXITED = "EXITED"  # the container ended, whatever its exit code
    RESTARTING = "RESTARTING"
    PAUSED = "PAUSED"
    FATAL_LOG = "FATAL_LOG"  # the log has a line the spec calls fatal
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

    `api_key` is the secret itself; it is sent as a bearer token and appears in no sample.
    """

    base_url: str
    health: str | None = "/health"
    health_status: int = 200
    models: bool = True
    model: str | None = None
    max_model_len: int | None = None
    completion: Completion | None = None
    api_key: str | None = None


class Rung(StrEnum):
    PORT = "port"
    HEALTH = "health"
    AUTH = "auth"
    MODELS = "models"
    COMPLETION = "completion"


@dataclass(frozen=True, slots=True)
class HttpSample:
    """What one climb of the HTTP rungs saw. `failed` is None when every asked rung passed.

    `status` is the HTTP status at the failed rung (None: no answer). `kind` says how it failed there: refused | timeout
    | unreachable | status | redirect | auth | wrong_model | bad_answer. `detail` is one line for a person.
    `model` is the model that answered; `seconds` the completion's duration.
    """

    failed: Rung | None
    kind: str = ""
    status: int | None = None
    detail: str = ""
    models: tuple[str, ...] = ()
    model: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything seen of one service in one look. None = not looked at, or cannot be told.

    `owner`: ours | foreign | inferred (the port was free before our start and the owner cannot be read) | None.
    """

    container: Container | None = None
    marker_seen: bool | None = None
    fatal_line: str | None = None
    owner: str | None = None
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


def judge(sample: Sample, ready: Ready | None) -> Verdict:  # filled in by the ladder's owner
    raise NotImplementedError
