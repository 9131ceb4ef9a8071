"""What can befall production and its ports during a swap, on each real engine, through real commands."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lanectl.core.container import Container
from lanectl.core.journal import Kind
from lanectl.core.lane import Restart
from lanectl.errors import ExitCode
from tests.support.aftermath import is_back, serves_alone, untouched
from tests.support.hooked_engine import HookedEngine
from tests.support.ladder_server import LadderServer
from tests.support.quick_clock import QuickClock
from tests.support.station import SERVER, SMALLEST, RealSite

DEAF = {"faults": "ignore-sigterm", "stop_grace_period": "1s"}
# Reads its faults from a file each time it starts: what was well can come back broken, and be cured.
READS_FAULTS = """
import runpy, sys
from pathlib import Path
faults = Path(sys.argv.pop(1)).read_text().split()
sys.argv += [word for fault in faults for word in ("--fault", fault)]
runpy.run_module("lanectl.reference.server", run_name="__main__")
"""


def _cured_by_file(site: RealSite, **lane: Any) -> tuple[Container, Path]:
    """Make production of a lane that reads its faults from a file; return its container and the file."""
    faults = site.root / "faults"
    faults.write_text("")
    command = ["-c", READS_FAULTS, str(faults), *SERVER[2:], *SMALLEST]
    return site.produce(command=command, volumes=["*${args.binds}", f"{faults}:{faults}:ro"], **lane), faults


def test_a_whole_swap_by_command_with_its_report_as_json(on_docker: RealSite) -> None:
    site = on_docker
    production = site.produce()
    site.lane("cand", more={"measure": {"profile": "quick"}})
    done = site.lanectl("swap", "cand", "--measure", "--yes", "--json")
    assert done.code == ExitCode.OK, done
    report = json.loads(done.out)
    assert (report["outcome"], report["restored"], report["exit_code"]) == ("measured", "prod", 0)
    assert 0 < report["timeline"]["dark_s"] < report["timeline"]["total_s"]
    assert Path(report["measured"]["path"]).is_file()
    assert site.until_closed() == "measured"
    is_back(site, production)
    assert site.lanectl("audit", "verify").code == ExitCode.OK


def test_a_promoted_lane_by_command_has_its_own_name_and_serves_on_the_public_port(site: RealSite) -> None:
    old = site.produce()
    name = site.lane("cand")
    done = site.lanectl("swap", "cand", "--keep", "--yes")
    assert done.code == ExitCode.OK, done
    assert "cand is production" in done.out
    serves_alone(site, name)
    parked = site.seen(old.id)
    assert (parked.running, parked.restart) == (False, Restart())
    assert parked.name.startswith(f"{old.name}.parked.")
    promoted = site.seen(name)
    site.lane("next")
    assert site.swap("next").outcome == "proven"
    is_back(site, promoted)


def test_T53_stops_that_are_ignored_end_in_kills_and_are_recorded(site: RealSite) -> None:
    production = site.produce(**DEAF)
    site.lane("cand", **DEAF)
    ended = site.swap("cand")
    assert ended.outcome == "proven", ended.words
    stopped = site.record(Kind.DONE, "stop:server")
    discarded = next(one for one in site.records() if one.kind is Kind.DONE and one.step.startswith("discard:"))
    assert stopped is not None
    assert (stopped.data["how"], stopped.data["exit_code"]) == ("kill", 137)
    assert stopped.data["seconds"] >= 1.0
    assert discarded.data["how"] == "kill"
    is_back(site, production)


def test_a_stranger_on_the_trial_port_is_refused(site: RealSite) -> None:
    production = site.produce()
    site.lane("cand")
    with LadderServer(port=site.trial):
        done = site.lanectl("swap", "cand", "--yes")
    assert done.code == ExitCode.REFUSED, done
    assert f"the trial port is held by {_own_name()}" in done.err
    untouched(site, production)


def test_a_stranger_on_the_public_port_is_refused_from_dark(site: RealSite) -> None:
    site.lane("cand")
    with LadderServer(port=site.public):
        done = site.lanectl("swap", "cand", "--from-dark", "--keep", "--yes")
    assert done.code == ExitCode.REFUSED, done
    assert f"the public port is held by {_own_name()}" in done.err
    assert not site.containers()


def test_a_parked_container_removed_behind_lanectls_back_is_made_again(site: RealSite) -> None:
    production = site.produce()
    site.lane("cand", faults="boot-delay=1")
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    site.engine.remove(production.id)
    done = begun.ended()
    assert done.code == ExitCode.OK, done
    assert "is gone: making it again" in done.out
    assert site.until_closed() == "proven"
    serves_alone(site, production.name)
    again = site.seen(production.name)
    assert (again.image_id, again.restart) == (production.image_id, production.restart)
    assert again.id != production.id


def test_T44_production_that_comes_back_broken_is_dark_never_success_and_recover_cures_it(site: RealSite) -> None:
    site.say(thresholds={"restore_attempts": 2})
    production, faults = _cured_by_file(site)
    site.lane("cand", faults="boot-delay=1")
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    faults.write_text("exit=1:3 traceback")
    done = begun.ended()
    assert done.code == ExitCode.DARK, done
    assert "DARK: prod is owed and could not be brought back" in done.out
    assert "ValueError: this failure was asked for" in done.out
    assert "lanectl recover" in done.out
    assert "restored and serving" not in done.out
    assert site.ask() is None

    again = site.lanectl("swap", "cand", "--yes")
    assert again.code == ExitCode.DARK, again
    assert "ValueError: this failure was asked for" in again.err

    faults.write_text("")
    recovered = site.lanectl("recover")
    assert recovered.code == ExitCode.OK, recovered
    assert site.until_closed() == "recovered:prove"
    is_back(site, production)


def test_T44_production_that_hangs_after_its_return_is_dark(on_local: RealSite) -> None:
    """It runs, /health is 200, /v1/models lists the model: only a real answer counts."""
    on_local.say(thresholds={"restore_attempts": 2})
    production, faults = _cured_by_file(on_local, ready={"completion": {"within": "2s"}})
    on_local.lane("cand")
    engine = HookedEngine(on_local.station().engine)
    engine.after("stop", lambda ref: faults.write_text("hang=0"), ref=production.id)
    ended = on_local.swap("cand", station=on_local.station(engine=engine))
    assert ended.exit_code is ExitCode.DARK
    assert "/v1/completions" in ended.words
    faults.write_text("")
    on_local.recover()
    is_back(on_local, production)


def test_T24_a_port_still_held_after_the_stop_is_dark_naming_the_holder_and_recover_works_once_it_is_gone(
    site: RealSite,
) -> None:
    """Somebody takes the public port in the moment production lets go of it."""
    site.say(thresholds={"restore_attempts": 1})
    production = site.produce()
    site.lane("cand")
    holders: list[socket.socket] = []
    engine = HookedEngine(site.station().engine)
    engine.after("stop", lambda ref: holders.append(_hold(site.public)), production.id)
    try:
        ended = site.swap("cand", station=site.station(engine=engine, clock=QuickClock()))
        assert ended.exit_code is ExitCode.DARK
        assert f"port {site.public} is still held by {_own_name()}" in ended.words
        assert site.record(Kind.BEGIN, "start:server") is None, "nothing is booted on top of it"
        assert not site.seen(production.id).running
    finally:
        for holder in holders:
            holder.close()
    site.recover()
    is_back(site, production)


def test_T24_a_port_that_is_let_go_in_time_costs_nothing_but_time(on_local: RealSite) -> None:
    site = on_local
    production = site.produce()
    site.lane("cand")
    holders: list[socket.socket] = []
    looks = iter(range(5))

    def let_go(ref: str) -> None:
        if next(looks, None) is None:
            holders[0].close()

    engine = HookedEngine(site.station().engine)
    engine.after("stop", lambda ref: holders.append(_hold(site.public)), production.id)
    station = site.station(engine=engine)
    station = site.station(engine=engine, prober=_Watched(station.prober, let_go))
    ended = site.swap("cand", station=station)
    assert ended.outcome == "proven", ended.words
    is_back(site, production)


def test_T24_a_child_that_keeps_productions_port_ends_with_its_container(site: RealSite) -> None:
    """It has a session of its own and would hold the listening socket for a minute after its server."""
    production = site.produce(faults="hold-port=60")
    site.lane("cand")
    ended = site.swap("cand")
    assert ended.outcome == "proven", ended.words
    freed = site.record(Kind.DONE, "free")
    assert freed is not None
    assert freed.data["port"] == "free"
    assert ended.report is not None
    assert ended.report.timeline.total_s < 60.0
    is_back(site, production)


class _Watched:
    """A prober that tells when somebody asks whether a port can be bound."""

    def __init__(self, prober: object, told: Callable[[str], None]) -> None:
        self._prober = prober
        self._told = told

    def __getattr__(self, name: str) -> object:
        return getattr(self._prober, name)

    def can_bind(self, host: str, port: int) -> bool:
        free: bool = self._prober.can_bind(host, port)  # type: ignore[attr-defined]
        if not free:
            self._told(host)
        return free


def _hold(port: int) -> socket.socket:
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", port))
    holder.listen()
    return holder


def _own_name() -> str:
    return Path("/proc/self/comm").read_text().strip()
