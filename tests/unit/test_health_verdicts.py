"""The ladder's decisions: every rung's reason code, what is final, and that nothing unknown counts as ready."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.core.container import Container, Status
from lanectl.core.health import (
    HttpSample,
    Kind,
    Owner,
    Reason,
    Rung,
    Sample,
    another_run,
    describe_exit,
    exit_of,
    judge,
    judge_http,
    owner_of,
)
from lanectl.core.lane import Completion, Ready
from lanectl.errors import ExitCode

RUNNING = Container("c0ffee", "dsv41", "sha256:1", "sha256:1", Status.RUNNING, started_at="2026-01-01T00:00:00Z")
HTTP = Ready(health="/health", models=True, completion=Completion())
WELL = HttpSample(None, detail="tiny completed in 0.01 s", model="tiny")
PASSED = Sample(container=RUNNING, owner=Owner.OURS, http=WELL)


def test_every_rung_passed_is_ready_in_the_server_s_words() -> None:
    verdict = judge(PASSED, HTTP)
    assert verdict.ready
    assert verdict.detail == "tiny completed in 0.01 s"


@pytest.mark.parametrize("code", [0, 1, 137, 255])
def test_T01_any_exit_is_final_code_0_too_and_speaks_the_log_s_words(code: int) -> None:
    ended = replace(RUNNING, status=Status.EXITED, exit_code=code)
    verdict = judge(replace(PASSED, container=ended, last_words="OSError: no such model"), HTTP)
    assert (verdict.reason, verdict.final) == (Reason.EXITED, True)
    assert str(code) in verdict.detail
    assert "OSError: no such model" in verdict.detail


def test_a_container_that_is_gone_has_exited() -> None:
    verdict = judge(replace(PASSED, container=None, gone=True), HTTP)
    assert (verdict.reason, verdict.final) == (Reason.EXITED, True)


@pytest.mark.parametrize(
    "sample",
    [
        replace(PASSED, container=replace(RUNNING, status=Status.RESTARTING)),
        replace(PASSED, restarted=True),
    ],
)
def test_T04_a_restart_is_final_although_the_container_runs(sample: Sample) -> None:
    verdict = judge(sample, HTTP)
    assert (verdict.reason, verdict.final) == (Reason.RESTARTING, True)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (RUNNING, False),
        (replace(RUNNING, restart_count=1), True),
        (replace(RUNNING, started_at="2026-01-01T00:00:09Z"), True),
        (replace(RUNNING, status=Status.EXITED, exit_code=1), False),
    ],
)
def test_T04_another_run_shows_in_the_count_or_the_start_time(now: Container, expected: bool) -> None:
    assert another_run(RUNNING, now) is expected


def test_T04_restarts_from_before_the_first_look_do_not_count() -> None:
    first = replace(RUNNING, restart_count=3)
    assert not another_run(first, first)


def test_a_paused_container_is_not_ready_but_may_become_so() -> None:
    verdict = judge(replace(PASSED, container=replace(RUNNING, status=Status.PAUSED)), HTTP)
    assert (verdict.reason, verdict.final) == (Reason.PAUSED, False)


def test_a_container_that_could_not_be_started_says_why() -> None:
    created = replace(RUNNING, status=Status.CREATED, error="CDI device injection failed")
    verdict = judge(Sample(container=created), HTTP)
    assert (verdict.reason, verdict.final) == (Reason.EXITED, True)
    assert "CDI device injection failed" in verdict.detail
    assert judge(Sample(container=replace(created, error="")), HTTP).reason is Reason.STARTING


def test_an_engine_that_cannot_be_asked_is_never_ready_and_never_final() -> None:
    verdict = judge(replace(PASSED, engine_error="connection refused"), HTTP)
    assert (verdict.reason, verdict.final) == (Reason.UNREACHABLE, False)


def test_a_fatal_line_ends_the_wait_in_the_log_s_words() -> None:
    sample = replace(PASSED, fatal_line="Traceback (most recent call last):", last_words="ValueError: bad map")
    verdict = judge(sample, HTTP)
    assert (verdict.reason, verdict.final, verdict.detail) == (Reason.FATAL_LOG, True, "ValueError: bad map")


def test_an_exit_outranks_the_fatal_line_that_came_before_it() -> None:
    ended = replace(RUNNING, status=Status.EXITED, exit_code=1)
    assert judge(replace(PASSED, container=ended, fatal_line="ValueError: x"), HTTP).reason is Reason.EXITED


def test_a_log_marker_is_a_rung_of_its_own() -> None:
    ready = Ready(log="^serving")
    waiting = judge(Sample(container=RUNNING, marker_seen=False), ready)
    assert (waiting.reason, waiting.final) == (Reason.STARTING, False)
    assert "^serving" in waiting.detail
    assert judge(Sample(container=RUNNING, marker_seen=True), ready).ready


def test_T06_a_stranger_on_the_port_is_final_whatever_it_answers() -> None:
    verdict = judge(replace(PASSED, owner=Owner.FOREIGN, owner_detail="held by old-server (pid 7)"), HTTP)
    assert (verdict.reason, verdict.final) == (Reason.FOREIGN_PORT, True)
    assert verdict.detail == "held by old-server (pid 7)"


def test_a_service_asked_over_http_is_not_ready_before_it_was_asked() -> None:
    assert judge(replace(PASSED, http=None), HTTP).reason is Reason.STARTING
    assert judge(replace(PASSED, http=None), Ready()).ready


@pytest.mark.parametrize(
    ("sample", "reason", "final"),
    [
        (HttpSample(Rung.PORT, Kind.REFUSED), Reason.STARTING, False),
        (HttpSample(Rung.PORT, Kind.TIMEOUT), Reason.UNREACHABLE, False),
        (HttpSample(Rung.PORT, Kind.UNREACHABLE), Reason.UNREACHABLE, False),
        (HttpSample(Rung.PORT, Kind.BAD_ANSWER), Reason.MISCONFIGURED, True),
        (HttpSample(Rung.HEALTH, Kind.CUT), Reason.STARTING, False),
        (HttpSample(Rung.HEALTH, Kind.TIMEOUT), Reason.HUNG, False),
        (HttpSample(Rung.HEALTH, Kind.STATUS, 500), Reason.STARTING, False),
        (HttpSample(Rung.HEALTH, Kind.STATUS, 503), Reason.STARTING, False),
        (HttpSample(Rung.HEALTH, Kind.STATUS, 429), Reason.STARTING, False),
        (HttpSample(Rung.HEALTH, Kind.STATUS, 202), Reason.MISCONFIGURED, False),
        (HttpSample(Rung.HEALTH, Kind.STATUS, 404), Reason.MISCONFIGURED, True),
        (HttpSample(Rung.HEALTH, Kind.REDIRECT, 301), Reason.MISCONFIGURED, True),
        (HttpSample(Rung.HEALTH, Kind.BAD_ANSWER), Reason.MISCONFIGURED, True),
        (HttpSample(Rung.AUTH, Kind.AUTH, 401), Reason.AUTH, True),
        (HttpSample(Rung.MODELS, Kind.STATUS, 400), Reason.MISCONFIGURED, True),
        (HttpSample(Rung.MODELS, Kind.WRONG_MODEL, 200), Reason.WRONG_MODEL, True),
        (HttpSample(Rung.COMPLETION, Kind.TIMEOUT), Reason.HUNG, True),
        (HttpSample(Rung.COMPLETION, Kind.NO_TOKEN, 200), Reason.HUNG, True),
        (HttpSample(Rung.COMPLETION, Kind.STATUS, 500), Reason.HUNG, False),
        (HttpSample(Rung.COMPLETION, Kind.STATUS, 503), Reason.STARTING, False),
        (HttpSample(Rung.COMPLETION, Kind.WRONG_MODEL, 404), Reason.WRONG_MODEL, True),
        (HttpSample(Rung.COMPLETION, Kind.CUT), Reason.STARTING, False),
    ],
)
def test_every_failed_http_rung_has_its_reason(sample: HttpSample, reason: Reason, final: bool) -> None:
    verdict = judge(replace(PASSED, http=sample), HTTP)
    assert (verdict.reason, verdict.final) == (reason, final)
    assert judge_http(sample) == verdict


def test_T11_dockers_own_health_check_is_a_hint_and_never_the_verdict() -> None:
    sick = replace(RUNNING, health="unhealthy")
    loading = judge(replace(PASSED, container=sick, http=HttpSample(Rung.PORT, Kind.REFUSED, detail="closed")), HTTP)
    assert (loading.reason, loading.final) == (Reason.STARTING, False)
    assert "HEALTHCHECK" in loading.detail
    assert judge(replace(PASSED, container=sick), HTTP).ready


samples = st.builds(
    HttpSample,
    failed=st.one_of(st.none(), st.sampled_from(Rung)),
    kind=st.sampled_from(Kind),
    status=st.one_of(st.none(), st.integers(100, 599)),
)


@given(samples)
def test_only_a_climb_without_a_failed_rung_is_ready_or_exits_0(sample: HttpSample) -> None:
    verdict = judge_http(sample)
    assert verdict.ready == (sample.failed is None)
    assert (exit_of(verdict.reason) is ExitCode.OK) == verdict.ready


@pytest.mark.parametrize("reason", Reason)
def test_the_published_exit_codes_of_health(reason: Reason) -> None:
    expected = {Reason.READY: 0, Reason.UNREACHABLE: 7}.get(reason, 1)
    assert exit_of(reason) == expected


OURS, STRANGER = frozenset({10, 11}), frozenset({99})


@pytest.mark.parametrize(
    ("listeners", "ours", "host_network", "port_was_free", "expected"),
    [
        (frozenset({11}), OURS, True, True, Owner.OURS),
        (frozenset({10, 11}), OURS, True, False, Owner.OURS),
        (STRANGER, OURS, True, True, Owner.FOREIGN),
        (frozenset({11, 99}), OURS, True, True, Owner.FOREIGN),
        (frozenset({11}), frozenset[int](), True, True, Owner.FOREIGN),
        (None, OURS, True, True, Owner.INFERRED),
        (frozenset({11}), None, True, True, Owner.INFERRED),
        (None, OURS, True, False, Owner.UNKNOWN),
        (STRANGER, OURS, False, False, Owner.INFERRED),
    ],
)
def test_T06_whose_port_it_is(
    listeners: frozenset[int] | None,
    ours: frozenset[int] | None,
    host_network: bool,
    port_was_free: bool,
    expected: Owner,
) -> None:
    assert owner_of(listeners, ours, host_network=host_network, port_was_free=port_was_free) is expected


@pytest.mark.parametrize(
    ("code", "oom_killed", "expected"),
    [
        (0, False, "exited with code 0"),
        (1, False, "exited with code 1"),
        (137, False, "killed by SIGKILL (exit code 137)"),
        (143, False, "killed by SIGTERM (exit code 143)"),
        (139, False, "killed by SIGSEGV (exit code 139)"),
        (255, False, "exited with code 255"),
        (137, True, "killed: out of memory (exit code 137)"),
        (None, False, "ended, exit code unknown"),
    ],
)
def test_T27_out_of_memory_only_when_the_engine_says_so(code: int | None, oom_killed: bool, expected: str) -> None:
    ended = replace(RUNNING, status=Status.EXITED, exit_code=code, oom_killed=oom_killed)
    assert describe_exit(ended) == expected
