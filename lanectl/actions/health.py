"""`lanectl health URL|LANE`: the ladder's HTTP rungs with a real completion. Needs no engine and no state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from lanectl.actions.errand import Errand
from lanectl.actions.look import Served, target_of
from lanectl.core.health import HttpTarget, Reason, Verdict, exit_of, judge_http
from lanectl.core.lane import Completion, Lane
from lanectl.errors import ExitCode, LaneError
from lanectl.ports import Clock, Prober

# Name lookup has no deadline of ours. The resolver's default is two tries of 5 s (resolv.conf(5)).
LOOKUP_WITHIN_S = 10.0
RUNGS = 3  # health, models, completion: each makes its own connection, the completion at most two
EXAMPLE = "such as http://127.0.0.1:30006"


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What `lanectl health` says: the ladder's reason, the published exit code, one line for a person."""

    reason: Reason
    exit_code: ExitCode
    detail: str
    seconds: float
    model: str | None = None


def check_url(
    url: str,
    *,
    prober: Prober,
    clock: Clock,
    model: str | None = None,
    api_key: str | None = None,
    completion: Completion | None = None,
) -> HealthReport:
    """Given a server's URL (with or without its /v1), climb the HTTP rungs once and return the report.

    `model` None: the first that /v1/models lists. `completion` None: one token within the default time. Raise
    `LaneError` (exit 2) for what is not an http(s) URL.
    """
    target = HttpTarget(base_url_of(url), model=model, completion=completion or Completion(), api_key=api_key)
    return _check(target, prober, clock)


def check_lane(lane: Lane, *, prober: Prober, clock: Clock, api_key: str | None = None) -> HealthReport:
    """Given a lane (rendered for the address it serves at), climb its server's HTTP rungs once and return the report.

    Raise `LaneError` (exit 2) for a lane that is not asked over HTTP.
    """
    ready = lane.server.ready
    if ready is None or not ready.speaks_http:
        raise LaneError(
            f"lane {lane.label} says nothing about readiness over HTTP, so there is nothing to ask",
            "give its server `ready: {models: true, completion: {max_tokens: 1}}`, or ask a URL",
        )
    served = Served(lane.host, lane.port, lane.served_model, lane.max_model_len, api_key)
    target = target_of(served, ready)
    return _check(replace(target, completion=target.completion or Completion()), prober, clock)


def base_url_of(url: str) -> str:
    """Given what a person typed, return http(s)://host[:port][/prefix]. Raise `LaneError` (exit 2)."""
    shown = "the URL" if "@" in url else repr(url)  # a password in it is not to be repeated
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise LaneError(f"{shown} is no URL: {error}", EXAMPLE) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise LaneError(f"{shown} is no http or https URL with a host", EXAMPLE)
    if parts.username is not None or parts.query or parts.fragment:
        raise LaneError("the URL may hold neither a user, a query nor a fragment", "an API key is given separately")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _check(target: HttpTarget, prober: Prober, clock: Clock) -> HealthReport:
    began = clock.monotonic()
    errand = Errand(lambda: prober.http(target), "health")
    within_s = _whole_s(target)
    if not errand.done(within_s):
        verdict, model = Verdict(Reason.UNREACHABLE, f"no answer of any kind within {within_s:.0f} s"), None
    else:
        sample = errand.result()
        verdict, model = judge_http(sample), sample.model
    return HealthReport(verdict.reason, exit_of(verdict.reason), verdict.detail, clock.monotonic() - began, model)


def _whole_s(target: HttpTarget) -> float:
    """Return what a climb may take at most: every rung's own deadline, and name lookup, which has none of ours."""
    completing_s = target.completion.within_s if target.completion is not None else 0.0
    return LOOKUP_WITHIN_S + RUNGS * target.answer_within_s + completing_s
