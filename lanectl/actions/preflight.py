"""Preflight: everything is checked before anything is touched, and all problems are reported at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lanectl.actions import strangers
from lanectl.actions.case import Case
from lanectl.actions.history import forgotten
from lanectl.actions.look import look, served
from lanectl.actions.notices import foreign_controllers, remove_ipc, unarmed
from lanectl.actions.station import Station
from lanectl.core.container import Container, EngineInfo
from lanectl.core.lane import Lane
from lanectl.core.owed import Owed, Production, after_trip
from lanectl.core.units import recover_service_name
from lanectl.errors import LaneError, Problem
from lanectl.site.local_rules import local_problems
from lanectl.site.manifest import file_sha256
from lanectl.store.files import explained
from lanectl.store.gates import find as find_record


@dataclass(frozen=True)
class Survey:
    """What preflight found. `problems` refuse the swap; `notices` are worth knowing and stop nothing."""

    problems: tuple[Problem, ...] = ()
    notices: tuple[Problem, ...] = ()
    engine: EngineInfo | None = None
    running: tuple[Container, ...] = field(default=())


def survey(
    station: Station, lane: Lane, owed: Owed | None, *, keep: bool, from_dark: bool, excused: tuple[str, ...] = ()
) -> Survey:
    """Run every read-only check; return all problems and notices. Raises nothing for what it may find.

    `excused`: required gates that are being run by this very swap.
    """
    try:
        engine = station.engine.info()
        containers = station.engine.containers()
    except LaneError as error:
        return Survey((*_complete(lane), _problem("engine", error)))
    case = Case(station, lane, owed, keep, from_dark, engine, containers, excused)
    problems: list[Problem] = []
    notices: list[Problem] = []
    for check in _CHECKS:
        try:
            problems += check(case)
        except LaneError as error:
            problems.append(_problem(check.__name__.strip("_").replace("_", " "), error))
    for watch in _WATCHES:
        notices += watch(case)
    return Survey(tuple(problems), tuple(notices), engine, containers)


def _problem(where: str, error: LaneError) -> Problem:
    return Problem(where, error.message, hint=error.hint or "")


def _incomplete(case: Case) -> Iterator[Problem]:
    yield from _complete(case.lane)


def _complete(lane: Lane) -> Iterator[Problem]:
    for missing in lane.missing:
        yield Problem(missing.where, f"{missing.name} is not given", hint=missing.hint)


def _engine_pinned(case: Case) -> Iterator[Problem]:
    config = case.station.site.engine
    if config.kind == "docker" and config.daemon_id is None:
        yield Problem(
            "station.yaml",
            f"engine.daemon_id is not given; the daemon at {case.engine.endpoint} says it is {case.engine.id}",
            hint=f"write `daemon_id: {case.engine.id}` under engine: if that is the daemon you mean",
        )


def _fits_the_engine(case: Case) -> Iterator[Problem]:
    if case.engine.kind == "local":
        yield from local_problems(case.lane)


def _images(case: Case) -> Iterator[Problem]:
    for service in case.lane.services:
        if _given(service.image) and case.station.engine.image(service.image) is None:
            yield Problem(
                f"services.{service.name}.image",
                f"{service.image} is not on this machine",
                hint="pull or load it now: nothing is pulled inside an outage",
            )


def _devices(case: Case) -> Iterator[Problem]:
    """What the daemon lists is a hint; a probe container is the last word."""
    for service in case.lane.services:
        names = tuple(device.qualified for device in service.devices if _given(device.qualified))
        image = case.station.engine.image(service.image) if _given(service.image) else None
        if not names or image is None:
            continue
        said = case.station.engine.cdi_problem(image.id, names)
        if said is None:
            continue
        known = ", ".join(case.engine.cdi_devices or ()) or "none"
        yield Problem(
            f"services.{service.name}.devices",
            f"the engine cannot inject {', '.join(names)}: {said}",
            hint=f"CDI devices it knows: {known}; after a driver or hardware change run "
            "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
        )


def _gpus(case: Case) -> Iterator[Problem]:
    wanted = {service.memory.uuid: service for service in case.lane.services if service.memory}
    if not wanted:
        return
    known = case.station.gpus.uuids()
    for uuid, service in wanted.items():
        if known is None:
            yield Problem(
                f"services.{service.name}.memory",
                "the GPUs of this machine cannot be read",
                hint="install lanectl with the extra `gpu`, and see that `nvidia-smi` answers",
            )
        elif uuid not in known:
            yield Problem(
                f"services.{service.name}.memory", f"no GPU {uuid} here", hint=f"GPUs: {', '.join(known) or 'none'}"
            )


def _map_file(case: Case) -> Iterator[Problem]:
    ref = case.lane.map
    if ref is None or not _given(ref.file):
        return
    if not os.path.isfile(ref.file):  # noqa: PTH113 - a name too long for the disk is no file; Path raises
        yield Problem("map.file", f"{ref.file} is not there", hint="maps/README.md says where maps come from")
    elif ref.sha256 is None:
        yield Problem("map.file", f"{ref.file} is not in maps/MANIFEST.yaml", hint="add its sha256 there")
    elif (found := file_sha256(ref.file)) != ref.sha256:
        yield Problem(
            "map.file",
            f"{ref.file} has sha256 {found}, maps/MANIFEST.yaml says {ref.sha256}",
            hint="put the right file back, or record the new one in the manifest after its gate has passed",
        )


def _gate_records(case: Case) -> Iterator[Problem]:
    """A gate with a boot of its own must have passed for this very map and image."""
    for gate in set(case.lane.requires) - set(case.excused):
        image = case.station.engine.image(case.lane.server.image) if _given(case.lane.server.image) else None
        sha256 = case.lane.map.sha256 if case.lane.map else None
        if image is None or sha256 is None:
            continue  # said by the checks on image and map
        found = find_record(case.station.state.gates, gate, sha256, image.id)
        if found is None or not found.result.passed:
            said = "was not run" if found is None else f"says {found.result.verdict}"
            yield Problem(
                "requires",
                f"gate {gate} {said} for map {sha256[:12]} and image {image.id[:19]}",
                hint=f"`lanectl gate {case.lane.name} {gate}` boots the lane's check variant and records the verdict",
            )


def _mounts(case: Case) -> Iterator[Problem]:
    for service in case.lane.services:
        for index, mount in enumerate(service.mounts):
            if _given(mount.source) and not os.path.exists(mount.source):  # noqa: PTH110 - as above
                where = f"services.{service.name}.volumes[{index}]"
                yield Problem(where, f"{mount.source} is not there", hint="create or mount it")


def _secrets(case: Case) -> Iterator[Problem]:
    """Reveal every secret once, and forget it: a missing one must not be found inside the outage."""
    from lanectl.actions.creates import create_all

    for name, args in create_all(case.station, case.lane, "preflight").items():
        if case.lane.missing:
            return
        try:
            case.station.reveal(args)
        except LaneError as error:
            yield _problem(f"services.{name}", error)


def _ports(case: Case) -> Iterator[Problem]:
    """The public port belongs to production and nobody else; the trial port is free."""
    site = case.station.site
    yield from _public_port(case)
    if case.keep:
        return
    if not case.station.prober.can_bind(case.lane.host, site.trial_port):
        owner = case.station.prober.port(case.lane.host, site.trial_port)
        yield Problem(
            f"port {site.trial_port}",
            f"the trial port is held by {', '.join(owner.names) or 'an unknown process'}",
            hint=f"`ss -ltnp 'sport = :{site.trial_port}'`; end it or set ports.trial in station.yaml",
        )


def _public_port(case: Case) -> Iterator[Problem]:
    site = case.station.site
    if case.owed is not None and not case.from_dark:
        return  # the ladder on production proves whose port it is
    if not case.station.prober.can_bind(site.host, site.public_port):
        owner = case.station.prober.port(site.client_host(), site.public_port)
        yield Problem(
            f"port {site.public_port}",
            f"the public port is held by {', '.join(owner.names) or 'an unknown process'}, which is not recorded as "
            "production",
            hint=f"`ss -ltnp 'sport = :{site.public_port}'`; if that is production, run `lanectl adopt`",
        )


def _nothing_owed(production: Production) -> Problem:
    """Why no production serves that a swap could come back to."""
    current, from_dark = production.current, "`--from-dark` starts with nothing serving"
    if current is None:
        adopt = "`lanectl adopt NAME` records what runs now"
        return Problem("production", "nothing is recorded as production", hint=f"{adopt}; {from_dark}")
    if production.tripped is not None:
        what = f"{current.label} does not serve: its watchdog tripped at {production.tripped.at}"
        return Problem(
            "production", f"{what}: {production.tripped.reason}", hint=f"{after_trip(production)}; {from_dark}"
        )
    return Problem(
        "production", f"{current.label} was stopped on purpose", hint=f"`lanectl start` starts it; {from_dark}"
    )


def _production_serves(case: Case) -> Iterator[Problem]:
    """Production is proven serving now, else there is no baseline to come back to."""
    if case.owed is None:
        production = case.station.production()
        if not case.from_dark and forgotten(case.station.state, production) is None:  # else said before all others
            yield _nothing_owed(production)
        return
    if case.from_dark:
        running = [s.container_name for s in case.owed.services if _runs(case, s.container_id)]
        if running:
            yield Problem("production", f"{', '.join(running)} is running", hint="leave out --from-dark")
        return
    for service in case.owed.services:
        _, verdict = look(
            engine=case.station.engine,
            prober=case.station.prober,
            container_id=service.container_id,
            service=service,
            served=served(case.station, case.owed, service),
        )
        if not verdict.ready:
            yield Problem(
                f"production {case.owed.label}",
                f"{service.container_name} is not proven serving: {verdict.reason}: {verdict.detail}",
                hint="repair it first, or use --from-dark once it is stopped",
            )


def _runs(case: Case, container_id: str) -> bool:
    return any(container.id == container_id and container.active for container in case.containers)


def _host(case: Case) -> Iterator[Problem]:
    needed = case.station.site.thresholds.disk_free
    root = Path(case.station.state.root)
    with explained(root, "look at the disk of"):
        free = shutil.disk_usage(root if root.exists() else root.parent).free
    if free < needed:
        yield Problem(
            str(root),
            f"{free // 2**20} MiB free, {needed // 2**20} MiB are asked for",
            hint="free some disk, or set thresholds.disk_free in station.yaml",
        )


def _recover_unit(case: Case) -> Iterator[Problem]:
    """Where systemd runs, something must bring production back after a power cut, unless the operator waived it."""
    if case.station.site.reboot_recovery != "required":
        return
    name = recover_service_name(case.station.site)
    if case.station.unit_enabled(name) is False:
        yield Problem(
            "reboot recovery",
            f"{name} is not enabled: after a power cut nothing would bring production back",
            hint="`sudo lanectl units --install` and the systemctl line it prints; or `reboot_recovery: accepted`",
        )


def _page_cache(case: Case) -> Iterator[Problem]:
    if case.lane.drop_page_cache and not os.access("/proc/sys/vm/drop_caches", os.W_OK):
        yield Problem("before_boot.drop_page_cache", "needs root", hint="run lanectl as root, or leave it out")


def _given(text: str) -> bool:
    return "${" not in text


_CHECKS: tuple[Callable[[Case], Iterator[Problem]], ...] = (
    strangers.lost_record,  # first: until it is settled what production is, nothing else can be judged
    _incomplete,
    _engine_pinned,
    _fits_the_engine,
    _images,
    _devices,
    _gpus,
    _map_file,
    _gate_records,
    _mounts,
    _secrets,
    _ports,
    _production_serves,
    strangers.names,
    strangers.parked_lanes,
    strangers.one_lane_a_gpu,
    _host,
    _recover_unit,
    _page_cache,
)


_WATCHES: tuple[Callable[[Case], Iterator[Problem]], ...] = (foreign_controllers, remove_ipc, unarmed)
