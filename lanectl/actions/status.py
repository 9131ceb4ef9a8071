"""`lanectl status`: what serves, since when, proven now; who is at work; what is owed and why it is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanectl.actions.history import FORGOTTEN, PastSwap, forgotten, past_swaps
from lanectl.actions.look import look, served
from lanectl.actions.station import Station
from lanectl.actions.unfinished import at_work
from lanectl.core.health import Reason, exit_of
from lanectl.core.journal import SwapState
from lanectl.core.owed import Desired, Owed, Production, after_trip
from lanectl.errors import ExitCode
from lanectl.store.journal import RESERVED_BYTES
from lanectl.store.lock import LockHolder
from lanectl.store.room import unwritable

if TYPE_CHECKING:
    from lanectl.actions.watch_view import WatchView

ADOPT = (
    "record what serves now with `lanectl adopt NAME...`, or start a lane with `lanectl swap LANE --keep --from-dark`"
)

DOWN = (Reason.EXITED,)  # a container ended, or is gone: what `lanectl recover` cures; it leaves alone what runs


@dataclass(frozen=True, slots=True)
class Serving:
    """Production as one look saw it. `since`: when it was last proven to serve again, else when its server started.
    `swap`: the swap that left it serving, None for one that was adopted and never swapped."""

    proven: bool
    reason: Reason
    detail: str
    since: str
    swap: str | None


@dataclass(frozen=True, slots=True)
class OpenSwap:
    """A swap whose journal is open. `working`: somebody holds the lock; else it was left behind. `stuck`: why DARK."""

    swap: str
    lane: str
    phase: str
    opened_at: str
    working: bool
    owed: str | None
    stuck: str | None


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The state of a site. `serving` None: not looked at, because nothing is owed or a swap is at work. `next`: what
    to run, in words. `watch`: the watchdog of production, where it asks for one and one was armed. `forgotten`: why it
    looks as if nothing had ever been production. `warning`: why nothing could be recorded now; the exit code does not
    count it, for what serves does not mind."""

    site: str
    station: str
    production: str | None
    adopted: bool
    address: str
    desired: str
    tripped: str | None
    serving: Serving | None
    watch: WatchView | None
    holder: LockHolder | None
    open_swap: OpenSwap | None
    last: PastSwap | None
    exit_code: ExitCode
    next: str
    forgotten: str | None = None
    warning: str | None = None


def status(station: Station) -> StatusReport:
    """Look once; change nothing. Raise `LaneError` for records that cannot be read."""
    holder, unfinished = at_work(station)
    production = station.production()
    last = next(past_swaps(station.state), None)
    swap = _open_swap(unfinished[0], holder) if unfinished else None
    serving = None
    if production.owed is not None and not (swap and swap.working):
        serving = _serving(station, production.owed, last)
    watch = _watch(station, production)
    code, then = verdict(production, serving, swap)
    if code is ExitCode.OK and serving is not None:
        cure = _watch_cure(production, watch)
        code, then = (ExitCode.FAILED, cure) if cure else (code, then)
    lost = forgotten(station.state, production)
    if code is ExitCode.OK and lost is not None and swap is None:
        code, then = ExitCode.FAILED, FORGOTTEN
    current = production.current
    return StatusReport(
        site=station.site.root,
        station=station.site.name,
        production=current.label if current else None,
        adopted=bool(current and current.adopted),
        address=f"{current.host}:{current.port}" if current else "",
        desired=production.desired,
        tripped=f"{production.tripped.at}: {production.tripped.reason}" if production.tripped else None,
        serving=serving,
        watch=watch,
        holder=holder,
        open_swap=swap,
        last=last,
        exit_code=code,
        next=then,
        forgotten=lost,
        warning=_warning(station),
    )


def verdict(production: Production, serving: Serving | None, swap: OpenSwap | None) -> tuple[ExitCode, str]:
    """Given what was seen, return the exit code and what to run next. The worst comes first."""
    if production.tripped is not None:
        return ExitCode.TRIPPED, f"nothing starts by itself after a trip: {after_trip(production)}"
    if swap is not None and swap.working:
        return ExitCode.OK, ""
    if swap is not None and swap.stuck is not None:
        return ExitCode.DARK, "cure the cause, then run `lanectl recover`"
    if swap is not None:
        return ExitCode.UNFINISHED, "run `lanectl recover`: it restores what that swap owes"
    if production.current is None:
        return ExitCode.OK, ADOPT
    if production.desired is Desired.STOPPED:
        return ExitCode.OK, "it was stopped on purpose"
    if serving is None or serving.proven:
        return ExitCode.OK, ""
    again = f"run `lanectl recover`: it starts {production.current.label} again; " if serving.reason in DOWN else ""
    return exit_of(serving.reason), again + "`lanectl logs` shows what it said last"


def _watch(station: Station, production: Production) -> WatchView | None:
    current = production.current
    if current is None or current.watchdog is None:
        return None
    from lanectl.actions.watch_view import view
    from lanectl.store.watch import WatchFiles, watch_key

    return view(WatchFiles(station.state.watch / watch_key(current.server.container_id)), current.label)


def _watch_cure(production: Production, watch: WatchView | None) -> str:
    """Return what to run where a lane that asks for a watchdog serves without one that looks and whose files are whole;
    "" where all is well."""
    current = production.current
    if current is None or current.watchdog is None or (watch is not None and watch.sound):
        return ""
    from lanectl.actions.watch_view import armed_by, mended_by

    return mended_by(current.label) if watch is not None and watch.armed else armed_by(current.label)


def _open_swap(state: SwapState, holder: LockHolder | None) -> OpenSwap:
    return OpenSwap(
        swap=state.swap,
        lane=state.lane,
        phase=state.phase,
        opened_at=state.opened_at,
        working=holder is not None,
        owed=state.owed.label if state.owed else None,
        stuck=state.stuck.reason if state.stuck else None,
    )


def _warning(station: Station) -> str | None:
    """What a swap's journal needs must be there before anybody needs it: a swap, or who comes to the rescue."""
    found = (unwritable(folder, RESERVED_BYTES) for folder in (station.state.root, station.state.swaps))
    why = next((reason for reason in found if reason), None)
    return None if why is None else f"nothing can be recorded: {why}; no swap begins, and a recovery may fail"


def _serving(station: Station, owed: Owed, last: PastSwap | None) -> Serving:
    """Climb the ladder on each service; the first that is not ready decides."""
    started, detail = "", ""
    for service in owed.services:
        sample, found = look(
            engine=station.engine,
            prober=station.prober,
            container_id=service.container_id,
            service=service,
            served=served(station, owed, service),
        )
        if not found.ready:
            return Serving(False, found.reason, f"{service.container_name}: {found.detail}", "", None)
        if service is owed.server:
            started = sample.container.started_at if sample.container else ""
            detail = found.detail
    put_back = last if last is not None and last.serving == owed.label else None
    since = (put_back.serving_at if put_back else None) or started
    return Serving(True, Reason.READY, detail, since, put_back.swap if put_back else None)
