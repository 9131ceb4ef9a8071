"""The only place where real adapters are built. Nothing is connected here: an engine is reached by its first call.

Everything is imported where it is built: the cron check of a URL needs neither the spec reader nor an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lanectl.actions.demo import DemoHost
    from lanectl.actions.station import Measured, Station
    from lanectl.actions.watch_post import Post
    from lanectl.core.site import EngineConfig, Site
    from lanectl.ports import Clock, ContainerEngine, Gpus, Prober
    from lanectl.settings import Settings
    from lanectl.store.layout import StateDir

STATE = "state"


def build_station(settings: Settings) -> Station:
    """Given the settings, return the station they mean. Raise `SpecError` or `LaneError` when it is no good site."""
    from lanectl.actions.station import Station
    from lanectl.jobs import DetachedJobs, unit_enabled
    from lanectl.logs import OperatorLog
    from lanectl.store.audit import Audit
    from lanectl.store.layout import StateDir
    from lanectl.store.process import boot_id

    site = read_site(settings)
    state = StateDir(Path(site.root) / STATE)
    clock = build_clock()
    return Station(
        site=site,
        state=state,
        engine=build_engine(site.engine, state),
        prober=build_prober(),
        gpus=_gpus(site),
        clock=clock,
        jobs=DetachedJobs(),
        audit=Audit(state.audit, clock, who()),
        log=OperatorLog(verbose=settings.verbose),
        measure=_measure,
        in_flight=_in_flight,
        converse=_converse,
        post_json=_post_json,
        command=settings.command,
        boot_id=boot_id(),
        environ=settings.environ,
        unit_enabled=unit_enabled,
    )


def read_site(settings: Settings) -> Site:
    """Return the site that the settings mean. Raise as `build_station`."""
    from lanectl.settings import site_root
    from lanectl.site.load import load_site

    return load_site(site_root(settings.site, settings.environ))


def state_dir(settings: Settings) -> StateDir:
    """Return where the site keeps its state; its specs need not be in order for that. Raise `LaneError` for no site."""
    from lanectl.settings import site_root
    from lanectl.store.layout import StateDir

    return StateDir(site_root(settings.site, settings.environ) / STATE)


def build_engine(config: EngineConfig, state: StateDir) -> ContainerEngine:
    """Return the engine that station.yaml names."""
    if config.kind == "local":
        from lanectl.engine.local import LocalEngine

        return LocalEngine(state.local, config.cdi_spec_dirs)
    from lanectl.engine.docker import DockerEngine

    return DockerEngine(config.endpoint, config.daemon_id)


def build_watch_post(settings: Settings, key: str, box_fd: int | None) -> Post:
    """Return the post of an armed watchdog, all of it from the files its owner wrote: the site's may be in the works.

    `box_fd`: the black box of the watcher that is taken over. What a fork will need is imported. Raise `LaneError`.
    """
    from lanectl.actions.fall_back import fall_back
    from lanectl.actions.watch_post import Post
    from lanectl.errors import LaneError
    from lanectl.jobs import DetachedJobs
    from lanectl.logs import OperatorLog
    from lanectl.probes.machine import shutting_down
    from lanectl.store.audit import Audit
    from lanectl.store.black_box import BlackBox
    from lanectl.store.watch import WatchFiles

    state = state_dir(settings)
    files = WatchFiles(state.watch / key)
    spec = files.spec()
    if spec is None:
        raise LaneError(f"{files.folder} has no spec.json", "`lanectl watch LANE` arms a lane's watchdog")
    if spec.engine.kind != "local":
        import docker  # noqa: F401
        import requests  # noqa: F401
    clock = build_clock()
    log = OperatorLog(verbose=settings.verbose)
    return Post(
        key=key,
        spec=spec,
        files=files,
        state=state,
        engine=build_engine(spec.engine, state),
        clock=clock,
        jobs=DetachedJobs(),
        audit=Audit(state.audit, clock, who()),
        log=log,
        box=BlackBox(box_fd, key),
        shutting_down=shutting_down,
        after_trip=lambda record: fall_back(state, spec, DetachedJobs(), log),
    )


def build_prober() -> Prober:
    from lanectl.probes.http import HttpProber

    return HttpProber()


def build_clock() -> Clock:
    from lanectl.clock import SystemClock

    return SystemClock()


def demo_station(settings: Settings, root: Path, words: tuple[str, ...]) -> Station:
    """Return the station of a demo site on which the command `words` runs."""
    from dataclasses import replace

    return build_station(replace(settings, site=str(root), command=("lanectl", "--site", str(root), *words)))


def demo_host(docker: bool, environ: Mapping[str, str]) -> DemoHost:
    """Return what the lanes of a demo site run on here: the engine at DOCKER_HOST, else child processes.

    Raise `LaneError` (exit 2) when the extra `demo` is missing, `Unreachable` when the engine cannot be used.
    """
    import importlib.util
    import sys

    from lanectl.actions.demo import DemoHost
    from lanectl.errors import ExitCode, LaneError

    if importlib.util.find_spec("numpy") is None:
        raise LaneError(
            "the demo's servers need numpy", "pip install 'lanectl-station[demo]' (or '.[demo]')", ExitCode.USAGE
        )
    if not docker:
        from lanectl.engine.environment import reference

        return DemoHost("local", sys.executable, reference(Path(__file__).parent / "reference"))
    from lanectl.engine.demo_image import ensure_image, python_binds
    from lanectl.site.station import DOCKER_ENDPOINT

    endpoint = environ.get("DOCKER_HOST") or DOCKER_ENDPOINT
    daemon_id, image = ensure_image(endpoint)
    return DemoHost("docker", sys.executable, image, endpoint, daemon_id, python_binds())


def who() -> dict[str, str]:
    """Return who is at work, for the audit: the login name, who became it, the machine."""
    import os
    import pwd
    import socket

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    sudo = os.environ.get("SUDO_USER", "")
    return {"user": user, "host": socket.gethostname()} | ({"sudo_user": sudo} if sudo else {})


def check_profile(name: str) -> None:
    """Raise `LaneError` (exit 2) naming the known profiles when there is none of this name."""
    from lanectl.measure.profiles import profile_named

    profile_named(name)


def measured_table(results: Mapping[str, Any]) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Given a measurement as it was recorded, return its table (label, value, unit) and the notes beside it."""
    from lanectl.core.codec import from_json, to_json
    from lanectl.measure.results import MeasuredProfile, notes, table

    measured = from_json(MeasuredProfile, to_json(results))  # a fresh one still holds tuples
    return table(measured), notes(measured)


def _gpus(site: Site) -> Gpus:
    from lanectl.probes.gpu import NoGpus, NvmlGpus

    return NvmlGpus() if site.gpus else NoGpus("station.yaml names no GPU")


def _measure(
    *,
    base_url: str,
    model: str,
    profile: str,
    raw_path: Path,
    check: Callable[[], None],
    progress: Callable[[str], None],
    api_key: str | None,
    kv_log_tokens: int | None,
) -> Measured:
    from lanectl.measure.profiles import profile_named
    from lanectl.measure.run import run_profile

    return run_profile(
        base_url=base_url,
        model=model,
        profile=profile_named(profile),
        raw_path=raw_path,
        check=check,
        progress=progress,
        api_key=api_key,
        kv_log_tokens=kv_log_tokens,
    )


def _in_flight(base_url: str, api_key: str | None) -> int | None:
    """Return how many requests the server runs and holds waiting, None when it does not say."""
    from lanectl.measure import metrics
    from lanectl.measure.client import Endpoint

    reading = metrics.scrape(Endpoint.parse(base_url, api_key))
    if reading is None:
        return None
    running, waiting = reading.total(metrics.RUNNING), reading.total(metrics.WAITING)
    return None if running is None and waiting is None else int((running or 0) + (waiting or 0))


def _converse(base_url: str, model: str, max_tokens: int, check: Callable[[], None], api_key: str | None) -> int:
    from lanectl.measure.converse import converse

    return converse(base_url, model, max_tokens, check, api_key)


def _post_json(url: str, api_key: str | None) -> dict[str, Any] | None:
    from lanectl.probes.control import post_json

    return post_json(url, api_key)
