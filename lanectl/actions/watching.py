"""Watchdogs in the work of swaps: who has one, and what a trip means for whoever is at work."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from lanectl.actions import engine_hints
from lanectl.actions.station import Station
from lanectl.actions.trip import keep_record
from lanectl.actions.watch_life import life_of
from lanectl.actions.watchdog import Guarded, Watchdog
from lanectl.core.container import Container
from lanectl.core.lane import Lane
from lanectl.core.lane import Watchdog as Policy
from lanectl.core.owed import Owed
from lanectl.core.watch import Mode, Rule
from lanectl.errors import ExitCode, LaneError
from lanectl.store.files import ensure_dir
from lanectl.store.watch import TripRecord, WatchFiles, watch_key

FALLBACK = "fallback"
# A trip is recorded within milliseconds of its kills; whoever sees the container end may look a little earlier.
RECORDED_WITHIN_S = 0.5
LOOK_EVERY_S = 0.01
# A trip ends with the death of its containers, some tenths of a second; an engine that hangs is asked for 90 s.
TRIP_ENDS_WITHIN_S = 100.0
# Between two looks that can be seen from outside lie 0.1 s. A watcher that looks no more is replaced after 1 s, one
# that is starved after 10; its successor is ready a second later.
LOOKS_WITHIN_S = 15.0
# The first may have been taken before we asked; the second began after the first was over.
LOOKS_TO_SEE = 2


def of_owed(station: Station, owed: Owed, ids: Mapping[str, str] | None = None) -> Watchdog | None:
    """Return the watchdog of an owed lane, None when it asks for none. `ids`: its containers as they are now."""
    if owed.watchdog is None:
        return None
    services = tuple((one.name, (ids or {}).get(one.name, one.container_id)) for one in owed.services)
    fallback = fallback_of(owed.watchdog, owed.fallback)
    return Watchdog(station, Guarded(owed.label, owed.watchdog, services, owed.server.name, fallback=fallback))


def of_candidate(station: Station, lane: Lane, ids: Mapping[str, str], swap: str, *, keep: bool) -> Watchdog | None:
    """Return the watchdog of a candidate, None when its lane asks for none.

    A fallback is the standing order for a lane that serves: a candidate that is not kept is followed by production.
    """
    if lane.watchdog is None:
        return None
    services = tuple((service.name, ids[service.name]) for service in lane.services)
    fallback = fallback_of(lane.watchdog, lane.fallback) if keep else None
    return Watchdog(station, Guarded(lane.label, lane.watchdog, services, lane.server.name, swap, fallback))


def fallback_of(policy: Policy, fallback: str | None) -> str | None:
    return fallback if policy.on_trip == FALLBACK else None


def found(station: Station, container: Container) -> Watchdog | None:
    """Return the watchdog that was armed for this server container, None when there never was one."""
    spec = WatchFiles(station.state.watch / watch_key(container.id)).spec()
    if spec is None:
        return None
    policy = Policy(spec.counters, spec.stall_s, "enforce" if spec.enforce else "observe", "dark")
    services = tuple((service.name, service.container_id) for service in reversed(spec.services))
    return Watchdog(station, Guarded(spec.lane, policy, services, spec.services[0].name, spec.swap, spec.fallback))


def trip_of(station: Station, server_id: str) -> TripRecord | None:
    """Return why the lane of this server container was killed, None when it was not. Raise `LaneError`."""
    return Watchdog.tripped(station.state, server_id)


def trip_soon(station: Station, server_id: str) -> TripRecord | None:
    """As `trip_of`, for somebody who has just seen the lane fail: its record may be a moment late."""
    deadline = station.clock.monotonic() + RECORDED_WITHIN_S
    while True:
        record = trip_of(station, server_id)
        if record is not None or station.clock.monotonic() > deadline:
            return record
        station.clock.sleep(LOOK_EVERY_S)


def stand_by(station: Station, container: Container) -> None:
    """Tell the watchdog of a container that is about to be stopped. That it cannot be told stops no restore."""
    with suppress(LaneError):
        watchdog = found(station, container)
        if watchdog is not None:
            watchdog.stand_by()


def end(station: Station, container: Container) -> None:
    """Let go of the watchdog of a container that is proven gone. That it cannot be told stops no restore."""
    with suppress(LaneError):
        watchdog = found(station, container)
        if watchdog is not None:
            watchdog.end()


def has_said(station: Station, server_id: str) -> bool:
    """Wait until the watchdog of a lane that is down has said what it has to say: its trip, if it trips, is on disk.

    It has when it has ended, and when it goes on looking: who trips looks no more until the lane is dead and that is
    recorded. So two looks that begin after we were asked, some tenths of a second, tell. Return False when it is still
    at work on a trip after `TRIP_ENDS_WITHIN_S`, or has not looked for `LOOKS_WITHIN_S` though no trip is begun.
    """
    files = WatchFiles(station.state.watch / watch_key(server_id))
    began = station.clock.monotonic()
    looked_at, looks = None, -1  # the look that is there already is none
    while (life := life_of(files)) is not None:
        if life.looked_at != looked_at or looks < 0:
            looked_at, looks = life.looked_at, looks + 1
        if looks >= LOOKS_TO_SEE and not life.at_last:
            return True
        tripping = life.at_last or not life.seen  # one whose memory may not be read might be
        if station.clock.monotonic() - began > (TRIP_ENDS_WITHIN_S if tripping else LOOKS_WITHIN_S):
            return False
        station.clock.sleep(LOOK_EVERY_S)
    return True


def clear_trip(station: Station, server_id: str) -> None:
    """A person clears a trip. Its watchdog may still be at work on it: what it writes last must not bring it back.

    One that lives on did not trip (its lane was found unwatched): the files that it needs stay. Raise `LaneError`
    (exit 75) when it does not end, or when the record cannot be removed.
    """
    if not has_said(station, server_id):
        raise LaneError(
            f"the watchdog that tripped is still at work after {TRIP_ENDS_WITHIN_S:g} s",
            f"`lanectl status` says what it sees; {engine_hints.show_containers(station)} shows what it could not kill",
            ExitCode.BUSY,
        )
    files = WatchFiles(station.state.watch / watch_key(server_id))
    if life_of(files) is not None:
        files.drop_records()
    else:
        Watchdog.clear_trip(station.state, server_id)


def ensure(station: Station, owed: Owed) -> str:
    """See to it that a serving lane that asks for a watchdog has one that looks, and that its files are whole.

    Return what was done, or could not be, in words; "" where nothing had to be. Raise `LaneError` when nobody watches
    the lane as one that serves: a watchdog that does is enough, though its files cannot be written.
    """
    watchdog = of_owed(station, owed)
    if watchdog is None:
        return ""
    before = watchdog.view()
    if before is not None and (before.tripped is not None or before.sound):
        return ""
    try:
        watchdog.arm()
        watchdog.tighten()
    except LaneError as error:
        now = watchdog.view()
        if now is not None and now.armed and now.mode is Mode.SERVING:
            return f"the watchdog of {owed.label} looks, but its files cannot be put right: {error.message}"
        raise
    if before is not None and before.armed:
        return f"the files of the watchdog of {owed.label} are put right: {before.damage}"
    return f"the watchdog of {owed.label} is armed now; before: {before.why if before is not None else 'it never was'}"


def record_unwatched(station: Station, owed: Owed, why: str, at: str) -> None:
    """Record that a lane was stopped because nobody can watch it, where a trip is recorded. Raise `LaneError`."""
    files = WatchFiles(station.state.watch / watch_key(owed.server.container_id))
    record = TripRecord(
        lane=owed.label,
        rule=Rule.UNWATCHED,
        reason=why,
        at=at,
        mono=station.clock.monotonic(),
        boot_id=station.boot_id,
        mode=Mode.SERVING,
        epoch=0,
        counters=None,
        enforced=True,
    )
    ensure_dir(files.folder)
    keep_record(files, record)
