"""Every rung of the readiness ladder fails in turn, on a real engine: the cause is named in the log's own words, and
production is back as the very same container, serving."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import docker
import pytest

from lanectl.actions.station import Station
from lanectl.core.container import Container
from lanectl.core.health import Reason
from lanectl.core.journal import Kind
from lanectl.core.lane import Restart
from lanectl.errors import ExitCode
from tests.support.aftermath import is_back
from tests.support.docker_engine import DockerEngine
from tests.support.engine_api import call
from tests.support.engine_images import LABEL
from tests.support.hooked_engine import HookedEngine
from tests.support.ladder_server import MODELS, LadderServer, models
from tests.support.poll import until
from tests.support.station import MAX_MODEL_LEN, MODEL, SERVER, SMALLEST, SOON_S, RealSite, docker_site

SOON = {"timeout": "1s"}  # of a wait that is meant to fail
LISTENS_ELSEWHERE = (*SERVER[:4], "--port", "0", *SERVER[6:], *SMALLEST)


@pytest.fixture(scope="module")
def serving(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSite]:
    """A site whose production serves through all tests of this module."""
    root = tmp_path_factory.mktemp("ladder")
    with docker_site(root / "site", docker_engine, f"lt-{root.name}-{time.monotonic_ns():x}-") as site:
        site.produce()
        yield site


@pytest.fixture
def production(serving: RealSite) -> Container:
    return serving.seen(f"{serving.prefix}prod")


@pytest.fixture(scope="module")
def unhealthy(docker_engine: DockerEngine, serving: RealSite) -> Iterator[str]:
    """An image like `pyhost` whose HEALTHCHECK never succeeds."""
    check = {"Test": ["CMD", "/nowhere"], "Interval": 10**8, "Timeout": 10**9, "Retries": 1}
    with docker.APIClient(docker_engine.url) as api:
        made = api.create_container(docker_engine.images["pyhost"], ["-"], name=f"{serving.prefix}image")
        image = api.commit(made["Id"], conf={"Healthcheck": check, "Labels": {LABEL: "unhealthy"}})["Id"]
        api.remove_container(made["Id"])
        yield image
        api.remove_image(image, force=True)


def _engine(site: RealSite) -> tuple[HookedEngine, Station]:
    station = site.station("swap", "cand")
    hooked = HookedEngine(station.engine)
    return hooked, site.station("swap", "cand", engine=hooked)


@dataclass(frozen=True)
class Case:
    """A candidate that fails, and what is read of it. `lane`: its keys as in `RealSite.lane`."""

    reason: Reason
    words: tuple[str, ...]
    lane: dict[str, Any] = field(default_factory=dict)


CASES = {
    "T01_exit_0_while_booting": Case(
        Reason.EXITED,
        ("exited with code 0", "last words: INFO"),
        {"faults": "exit=0:3"},
    ),
    "exit_1_while_booting": Case(
        Reason.EXITED,
        ("exited with code 1", "last words: ValueError: this failure was asked for"),
        {"faults": "exit=1:3 traceback", "ready": {"fatal": []}},
    ),
    "a_fatal_line_in_the_log": Case(
        Reason.FATAL_LOG,
        ("Starting to load model demo...",),
        {"faults": "loading=20", "ready": {"fatal": ["Starting to load model"]}},
    ),
    "T07_a_redirect": Case(Reason.MISCONFIGURED, ("/health redirects (301)",), {"faults": "answer=301:/health"}),
    "a_health_path_that_is_not_there": Case(
        Reason.MISCONFIGURED, ("/nowhere answers 404",), {"ready": {"health": "/nowhere"}}
    ),
    "T07_a_key_is_asked_for": Case(Reason.AUTH, ("/v1/models answers 401",), {"faults": "answer=401:/v1"}),
    "another_model": Case(Reason.WRONG_MODEL, ("lists other", f"expected {MODEL}"), {"faults": "wrong-model=other"}),
    "another_length": Case(
        Reason.WRONG_MODEL, (str(MAX_MODEL_LEN), "expected 4096"), {"more": {"max_model_len": 4096}}
    ),
    "T02_health_200_while_every_generation_hangs": Case(
        Reason.HUNG,
        ("/v1/completions", "within 1.0 s"),
        {"faults": "hang=0", "ready": {"completion": {"within": "1s"}}},
    ),
    "a_time_out": Case(Reason.STARTING, ("not ready after 1 s",), {"faults": "boot-delay=20", "ready": SOON}),
    "a_log_marker_that_never_comes": Case(
        Reason.STARTING, ("no log line matches 'the sidecar is up'",), {"ready": {"log": "the sidecar is up", **SOON}}
    ),
    "a_boot_fact_that_is_missing": Case(
        Reason.BOOT_FACT,
        ("replay: no log line matches 'bounded replay'",),
        {"facts": {"replay": {"log": "bounded replay", "required": True}}},
    ),
    "a_boot_fact_below_its_bound": Case(
        Reason.BOOT_FACT,
        ("kv_tokens:", "is less than at_least 8,400,000"),
        {"facts": {"kv_tokens": {"log": r"KV cache size: ([\d,]+) tokens", "at_least": 8_400_000}}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rung_that_fails(serving: RealSite, production: Container, name: str) -> None:
    case = CASES[name]
    serving.lane("cand", **case.lane)
    _fails(serving, production, case.reason, *case.words)


def _fails(site: RealSite, production: Container, reason: Reason, *words: str, **swap: Any) -> None:
    ended = site.swap("cand", **swap)
    assert (ended.exit_code, ended.outcome) == (ExitCode.CANDIDATE, "failed:ready:server"), ended
    report = ended.report
    assert report is not None
    assert report.failure is not None
    assert report.failure.reason == reason, report.failure
    assert [word for word in words if word not in report.failure.message] == [], report.failure.message
    assert report.restored == "prod"
    is_back(site, production)


def test_T04_a_restart_loop_is_seen_as_one_long_before_the_time_out(serving: RealSite, production: Container) -> None:
    """Candidates boot with restart "no"; here somebody gives it another policy, and it dies while booting."""
    serving.lane("cand", faults="exit=1:3", ready={"timeout": "5m"})
    engine, station = _engine(serving)
    engine.after("create", lambda ref: serving.engine.set_restart(ref, Restart("always")))
    began = time.monotonic()
    _fails(serving, production, Reason.RESTARTING, "started again", station=station)
    assert time.monotonic() - began < SOON_S


def test_T05_one_boot_a_swap_even_if_the_lane_says_restart_always(
    serving: RealSite, production: Container, docker_engine: DockerEngine
) -> None:
    name = serving.lane("cand", faults="exit=1:3", restart="always")
    since = _now(docker_engine)
    _fails(serving, production, Reason.EXITED, "exited with code 1")
    starts = [event for event in _events(docker_engine, since) if event["Action"] == "start"]
    names = [event["Actor"]["Attributes"]["name"] for event in starts]
    assert [one for one in names if one.startswith(f"{name}.candidate.")] == [
        f"{name}.candidate.{serving.records()[0].swap}"
    ]


def test_T06_a_stale_server_that_answers_in_the_candidates_place(serving: RealSite, production: Container) -> None:
    """It answers health, models and completions as it should; it is just not the container that was started."""
    serving.lane("cand", command=LISTENS_ELSEWHERE)
    engine, station = _engine(serving)
    stale: list[LadderServer] = []

    def answer(ref: str) -> None:
        stale.append(LadderServer(port=serving.trial))
        stale[0].replies[MODELS].body = models(MODEL, max_model_len=MAX_MODEL_LEN)

    engine.after("start", answer)
    try:
        _fails(serving, production, Reason.FOREIGN_PORT, f"port {serving.trial} is held by", station=station)
        assert set(stale[0].paths()) <= {"/health"}, "a stranger is sent neither a key nor a prompt"
    finally:
        for server in stale:
            server.close()


def test_a_candidate_that_somebody_pauses(
    serving: RealSite, production: Container, docker_engine: DockerEngine
) -> None:
    serving.lane("cand", faults="boot-delay=20", ready=SOON, stop_grace_period="1s")
    engine, station = _engine(serving)
    engine.after("start", lambda ref: call(docker_engine.url, "POST", f"/containers/{ref}/pause"))
    _fails(serving, production, Reason.PAUSED, "paused", station=station)


def test_a_candidate_that_somebody_removes(serving: RealSite, production: Container) -> None:
    serving.lane("cand", faults="boot-delay=20")
    engine, station = _engine(serving)
    engine.after("logs", serving.engine.remove)
    _fails(serving, production, Reason.EXITED, "gone", station=station)


def test_T11_an_unhealthy_healthcheck_is_a_hint_and_not_the_verdict(
    serving: RealSite, production: Container, docker_engine: DockerEngine, unhealthy: str
) -> None:
    """The image's own HEALTHCHECK fails from the first moment on; the server behind it is well."""
    serving.lane("cand", image=unhealthy, faults="boot-delay=1")
    since = _now(docker_engine)
    ended = serving.swap("cand")
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "proven")
    actions = [event["Action"] for event in _events(docker_engine, since)]
    assert "health_status: unhealthy" in actions, actions
    is_back(serving, production)


def test_T11_the_hint_is_told_beside_the_reason(serving: RealSite, production: Container, unhealthy: str) -> None:
    serving.lane("cand", image=unhealthy, faults="boot-delay=20", ready=SOON)
    _fails(serving, production, Reason.STARTING, "unhealthy", "a hint only")


def test_T12_a_log_marker_that_comes_in_pieces(serving: RealSite, production: Container) -> None:
    """Every line of the boot log is cut in three and inside a character, 10 ms apart."""
    serving.lane("cand", faults="half-lines=0.01", ready={"log": "Application startup complete. … Größe$"})
    ended = serving.swap("cand")
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "proven")
    is_back(serving, production)


PIECES = """
import os, runpy, time
line = "serving Größe … {}\\n"
for cut in range(1, len(line.format(0).encode())):
    data = line.format(cut).encode()
    for piece in (data[:cut], data[cut:]):
        os.write(1, piece)
        time.sleep(0.002)
runpy.run_module("lanectl.reference.server", run_name="__main__")
"""


def test_T12_the_marker_is_found_in_every_split(serving: RealSite, production: Container) -> None:
    """One boot writes the marker cut at every byte in turn; each of them is a boot fact that must have been read."""
    cuts = range(1, len("serving Größe … 0\n".encode()))
    facts = {f"cut_{cut}": {"log": f"^serving Größe … {cut}$", "required": True} for cut in cuts}
    serving.lane(
        "cand",
        command=["-c", PIECES, *SERVER[2:], *SMALLEST],
        ready={"log": f"^serving Größe … {cuts[-1]}$"},
        facts=facts,
    )
    ended = serving.swap("cand")
    assert (ended.exit_code, ended.outcome) == (ExitCode.OK, "proven"), ended.words
    ready = serving.record(Kind.DONE, "ready:server")
    assert ready is not None
    assert set(ready.data["facts"]) == set(facts)
    is_back(serving, production)


def test_the_command_says_why_and_exits_4(serving: RealSite, production: Container) -> None:
    """The candidate dies after minutes in real life: what the operator reads first is the log's own line."""
    serving.lane("cand", faults="exit=1:3 traceback")
    done = serving.lanectl("swap", "cand", "--yes")
    assert done.code == ExitCode.CANDIDATE, done
    first = done.out.splitlines()[0]
    assert "cand failed at ready:server" in first
    assert "ValueError: this failure was asked for" in first
    assert "prod is restored and serving" in done.out
    assert "lanectl/actions" not in done.out + done.err, "no traceback of ours"
    until(lambda: not serving.guards(), SOON_S, "the guard has ended")
    is_back(serving, production)


def _now(engine: DockerEngine) -> float:
    """Return the engine's time."""
    return datetime.fromisoformat(str(call(engine.url, "GET", "/info")["SystemTime"])[:26] + "+00:00").timestamp()


def _events(engine: DockerEngine, since: float) -> list[dict[str, Any]]:
    """Return the engine's container events from `since` until now."""
    with docker.APIClient(engine.url) as api:
        return list(api.events(since=since, until=_now(engine), filters={"type": "container"}, decode=True))
