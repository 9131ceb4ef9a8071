"""Preflight: every reason to refuse is found before production is touched, and all are told at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanectl.core.journal import Kind
from lanectl.core.lane import Restart
from lanectl.core.owed import Desired, Tripped
from lanectl.errors import ExitCode, Refused
from lanectl.store.files import ensure_dir
from tests.support.aftermath import untouched
from tests.support.engine_cdi import GPUS, NAMES
from tests.support.fake_engine import FakeEngine
from tests.support.fake_station import PUBLIC, TRIAL, FakeSite
from tests.support.fake_world import Listener, Program

UNKNOWN_GPU = "nvidia.com/gpu=GPU-cccccccc-0000-4000-8000-000000000000"
MISSING_IMAGE = "sha256:" + "0" * 64


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    site = FakeSite(tmp_path)
    site.produce(devices=[NAMES["rtx"]])
    site.lane("cand")
    return site


def _stranger(port: int) -> Listener:
    return Listener(port, frozenset({4711}), "nginx", Program())


def _runs_on(site: FakeSite, device: str) -> None:
    image = site.world.add_image("hand")
    host = {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [device]}]}
    with site.world.changed:
        site.world.start(site.world.add("jupyter", {"Image": image.id, "HostConfig": host}, image, Restart()))


def _map(site: FakeSite, text: str, manifest: str, more: Mapping[str, object] | None = None) -> None:
    ensure_dir(site.root / "maps")
    (site.root / "maps" / "m.json").write_text(text)
    (site.root / "maps" / "MANIFEST.yaml").write_text(f"maps: {{{manifest}}}\n")
    ref = {"file": "maps/m.json", "mount": "/m.json", "services": ["server"]}
    site.lane("cand", more={"map": ref, **(more or {})})


OTHER_SUM = "f" * 64
SUM = hashlib.sha256(b"[]").hexdigest()
REASONS: dict[str, tuple[Callable[[FakeSite], object], tuple[str, ...]]] = {
    "T42 an image that is not here": (lambda site: site.lane("cand", image=MISSING_IMAGE), (MISSING_IMAGE, "pull")),
    "T28 an unknown CDI name": (
        lambda site: site.lane("cand", devices=[UNKNOWN_GPU]),
        (UNKNOWN_GPU, NAMES["gb300"], NAMES["rtx"], "nvidia-ctk cdi generate"),
    ),
    "two lanes on one GPU": (
        lambda site: (site.lane("cand", devices=[NAMES["gb300"]]), _runs_on(site, NAMES["gb300"])),
        ("jupyter", NAMES["gb300"], "adopt"),
    ),
    "a stranger on the trial port": (lambda site: site.world.strangers.append(_stranger(TRIAL)), ("nginx", str(TRIAL))),
    "a mount that is not there": (
        lambda site: site.lane("cand", volumes=["/nowhere/model:/model:ro"]),
        ("/nowhere/model",),
    ),
    "a map that is not in the manifest": (lambda site: _map(site, "[]", ""), ("m.json", "MANIFEST.yaml")),
    "a map that was edited": (
        lambda site: _map(site, "[]", f"m.json: {{sha256: {OTHER_SUM}}}"),
        ("m.json", OTHER_SUM, "has sha256"),
    ),
    "a required gate that was not run": (
        lambda site: _map(site, "[]", "m.json: {sha256: " + SUM + "}", {"requires": ["map-cosine"]}),
        ("gate map-cosine was not run", "lanectl gate cand map-cosine"),
    ),
    "a secret that is not set": (
        lambda site: (
            site.say(secrets={"token": {"env": "LANECTL_TEST_NOT_SET"}}),
            site.lane("cand", environment={"TOKEN": "${secrets.token}"}),
        ),
        ("LANECTL_TEST_NOT_SET",),
    ),
    "something the station does not give yet": (
        lambda site: site.lane("cand", image="${images.engine}"),
        ("images.engine", "station.yaml"),
    ),
    "a full disk": (
        lambda site: site.say(thresholds={"disk_free": "900000000GiB"}),
        ("MiB free", "thresholds.disk_free"),
    ),
}


@pytest.mark.parametrize("reason", REASONS)
def test_refused_before_anything_is_touched(site: FakeSite, reason: str) -> None:
    production = site.seen("prod")
    arrange, words = REASONS[reason]
    arrange(site)
    beside = ["jupyter"] if "jupyter" in site.containers() else []
    ended = site.swap("cand")
    assert isinstance(ended.error, Refused)
    assert ended.exit_code is ExitCode.REFUSED
    assert [word for word in words if word not in ended.words] == [], ended.words
    assert all(problem.hint for problem in ended.error.problems), "each problem says what to do"
    untouched(site, production, beside=beside)
    created = [one.step for one in site.records() if one.kind is Kind.BEGIN]
    assert created == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            {"tripped": Tripped("03:10", "stalled")},
            ("prod", "tripped at 03:10", "stalled", "lanectl restart", "--from-dark"),
        ),
        ({"desired": Desired.STOPPED}, ("prod", "stopped on purpose", "lanectl start", "--from-dark")),
        ({"current": None}, ("production.json is gone", "left prod serving", "lanectl adopt")),
    ],
)
def test_why_nothing_serves_that_a_swap_could_come_back_to(
    site: FakeSite, state: dict[str, Any], words: tuple[str, ...]
) -> None:
    station = site.station()
    station.record_production(replace(station.production(), **state))
    ended = site.swap("cand")
    assert ended.exit_code is ExitCode.REFUSED
    assert [word for word in words if word not in ended.words] == [], ended.words


def test_all_reasons_are_told_at_once(site: FakeSite) -> None:
    production = site.seen("prod")
    site.lane("cand", image=MISSING_IMAGE, volumes=["/nowhere:/model:ro"])
    site.world.strangers.append(_stranger(TRIAL))
    ended = site.swap("cand")
    assert isinstance(ended.error, Refused)
    assert len(ended.error.problems) == 3
    untouched(site, production)


def test_a_gpu_that_does_not_exist_is_named_with_those_that_do(site: FakeSite) -> None:
    gone = "GPU-dddddddd-0000-4000-8000-000000000000"
    site.say(gpus={**GPUS, "gone": gone})
    site.lane("cand", memory={"gpu": "gone"})
    ended = site.swap("cand")
    assert ended.exit_code is ExitCode.REFUSED
    assert gone in ended.words
    assert GPUS["gb300"] in ended.words


@pytest.mark.parametrize("keep", [False, True])
def test_from_dark_with_a_stranger_on_the_public_port_is_refused(tmp_path: Path, keep: bool) -> None:
    site = FakeSite(tmp_path)
    site.lane("cand")
    site.world.strangers.append(_stranger(PUBLIC))
    ended = site.swap("cand", from_dark=True, keep=keep)
    assert ended.exit_code is ExitCode.REFUSED
    assert "nginx" in ended.words
    assert not site.containers()


def test_from_dark_while_production_runs_is_refused(site: FakeSite) -> None:
    production = site.seen("prod")
    ended = site.swap("cand", from_dark=True)
    assert ended.exit_code is ExitCode.REFUSED
    assert "prod is running" in ended.words
    untouched(site, production)


def test_a_stranger_on_productions_port_beside_it_is_no_baseline(site: FakeSite) -> None:
    """SO_REUSEPORT: a stale server may share the port and answer every second request."""
    production = site.seen("prod")
    site.world.strangers.append(replace(_stranger(PUBLIC), name="stale"))
    ended = site.swap("cand")
    assert ended.exit_code is ExitCode.REFUSED
    assert "FOREIGN_PORT" in ended.words
    assert site.seen("prod") == production


def test_T39_another_daemon_than_the_pinned_one_is_refused(site: FakeSite) -> None:
    production = site.seen("prod")
    other = FakeEngine(site.world, pinned="the-other-daemon")
    ended = site.swap("cand", station=site.station(engine=other))
    assert ended.exit_code is ExitCode.REFUSED
    assert "daemon_id" in ended.words
    assert not [call for call, _ in other.calls if call not in ("info", "containers")]
    assert site.seen("prod") == production


def test_an_engine_that_is_not_pinned_is_refused_with_the_line_to_write(site: FakeSite) -> None:
    site.say(engine={"kind": "docker", "endpoint": "unix:///in/memory.sock"})
    ended = site.swap("cand")
    assert ended.exit_code is ExitCode.REFUSED
    assert "daemon_id: fake-engine" in ended.words
