"""A trip: kill the lane, server first, then make sure that everybody knows. Nothing is started."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lanectl.actions.watch_post import Post
from lanectl.actions.watch_priority import give_up_priority
from lanectl.actions.watched import BY_ENGINE, BY_PIDFD, Watched
from lanectl.core.codec import from_json, to_json
from lanectl.core.owed import Tripped
from lanectl.core.watch import Mode, Rule, Trip
from lanectl.errors import Busy, ExitCode, LaneError, NotThere
from lanectl.store import production
from lanectl.store.audit import OUTCOME
from lanectl.store.files import release
from lanectl.store.lock import Lock
from lanectl.store.process import boot_id
from lanectl.store.watch import Kill, TripRecord, WatchFiles

RESERVE = "trip.reserve"  # disk kept for the record of a trip: a full disk must not make it forgotten
RESERVED_BYTES = 64 * 1024

# A kill is sent within a millisecond; only the engine's connection may take longer. Not to be waited for any longer:
# the record must become durable.
SENT_WITHIN_S = 0.5
# A killed server frees 250 GB in seconds; the engine's own limit for a kill is a minute.
GONE_WITHIN_S = 90.0
LOOK_EVERY_S = 0.01
AGAIN_EVERY_S = 0.5  # an engine that is away is asked again as long as this process lives

# What a machine that goes down looks like from here: its engine ends the containers, some sooner than others.
ENDS_WITH_THE_MACHINE = (Rule.SIDECAR_GONE, Rule.FILE_UNREADABLE)


class Killer(threading.Thread):
    """Kills one container, whatever the engine does: through its first process's pidfd, then through the engine."""

    def __init__(self, post: Post, watched: Watched, before: Killer | None) -> None:
        super().__init__(name=f"kill {watched.name}", daemon=True)
        self._post = post
        self._service = watched.service
        self._first = watched.first
        self._before = before
        self._sent_at = self._ended_at = self._engine_at = 0.0
        self._by = self._error = ""
        self.sent = threading.Event()

    def run(self) -> None:
        if self._before is not None:
            self._before.sent.wait()
        self._by = BY_PIDFD if self._first is not None and self._first.kill() else BY_ENGINE
        self._sent_at = self._post.clock.monotonic()
        self.sent.set()
        while not self._asked_engine():
            self._post.clock.sleep(AGAIN_EVERY_S)

    @property
    def gone(self) -> bool:
        """True once it does not run: the engine said so, or its first process has ended."""
        if not self._ended_at and self._first is not None and self._first.ended_within(0):
            self._ended_at = self._post.clock.monotonic()
        return bool(self._ended_at or self._engine_at)

    @property
    def kill(self) -> Kill:
        """What is known of it by now."""
        gone = min((at for at in (self._ended_at, self._engine_at) if at), default=None)
        return Kill(self._service.name, self._service.container_id, self._by, self._sent_at, gone, self._error)

    def _asked_engine(self) -> bool:
        """The engine's kill comes second, and again until it works: it also ends what a freezer keeps from dying."""
        try:
            self._post.engine.kill(self._service.container_id)
        except NotThere:
            pass
        except Exception as error:  # whatever it is, it must be tried again
            self._error = str(error) or type(error).__name__
            return False
        self._engine_at, self._error = self._post.clock.monotonic(), ""
        return True


def trip(post: Post, why: Trip, mode: Mode, epoch: int, lane: Sequence[Watched]) -> TripRecord | None:
    """Kill the lane (given in kill order), record it, and wait until it is gone; return the record.

    None when the lane was killed and yet did not trip: its sidecar ended because the machine is going down.
    """
    post.box.note({"trip": to_json(why), "mode": mode, "epoch": epoch})
    killers: list[Killer] = []
    for watched in lane:
        killers.append(Killer(post, watched, killers[-1] if killers else None))
    for killer in killers:
        killer.start()
    record = _record(post, why, mode, epoch, enforced=True)
    for killer in killers:
        killer.sent.wait(SENT_WITHIN_S)
    if why.rule in ENDS_WITH_THE_MACHINE and post.shutting_down():
        _await_gone(post, killers)
        post.box.note({"done": int(ExitCode.OK)})
        return None
    record = replace(record, kills=tuple(killer.kill for killer in killers))
    _keep(post, record)
    _announce(post, record)
    _await_gone(post, killers)
    record = replace(record, kills=tuple(killer.kill for killer in killers))
    _keep(post, record)
    post.box.note({"done": int(ExitCode.TRIPPED)})
    return record


def follow_up(post: Post, record: TripRecord) -> None:
    """Carry out the standing order, if there is one; what it starts must not inherit a watchdog's privileges."""
    give_up_priority()
    post.after_trip(record)


def observe(post: Post, why: Trip, mode: Mode, epoch: int) -> TripRecord:
    """Record what would have been a trip; return the record. Nobody is killed, and production is what it was."""
    record = _record(post, why, mode, epoch, enforced=False)
    _keep(post, record)
    _announce(post, record)
    return record


def unfinished(post: Post) -> tuple[Trip, Mode, int] | None:
    """Return the trip that a watcher had begun when it died; None when it had not."""
    noted = post.box.noted()
    if not isinstance(noted, dict) or "trip" not in noted:
        return None
    return from_json(Trip, noted["trip"]), Mode(noted["mode"]), int(noted["epoch"])


def _announce(post: Post, record: TripRecord) -> None:
    """Tell the site: production.json, where the lane is production and was killed, and the audit. Never raises."""
    if record.enforced:
        _tell_site(post, record)
    data: dict[str, Any] = {"lane": record.lane, "outcome": "tripped" if record.enforced else "observed"}
    data |= {"rule": record.rule, "reason": record.reason, "counters": to_json(record.counters)}
    try:
        post.audit.write(OUTCOME, "watch", data | {"kills": to_json(record.kills)})
    except LaneError as error:
        post.log.error("audit not written; what was done stands", error=error.message)


def _tell_site(post: Post, record: TripRecord) -> None:
    """production.json belongs to who holds the site's lock. When somebody does, `tripped.json` tells them."""
    try:
        lock = Lock(post.state.lock)
        lock.acquire(command="lanectl watch")
        try:
            _mark_production(post, record)
        finally:
            lock.release()
    except Busy as busy:
        post.log.warning("production.json is left to who holds the lock", holder=busy.message)
    except LaneError as error:
        post.log.error("the trip is not in production.json", error=error.message)


def _record(post: Post, why: Trip, mode: Mode, epoch: int, *, enforced: bool) -> TripRecord:
    return TripRecord(
        lane=post.spec.lane,
        rule=why.rule,
        reason=why.reason,
        at=post.clock.wall(),
        mono=post.clock.monotonic(),
        boot_id=boot_id(),
        mode=mode,
        epoch=epoch,
        counters=why.counters,
        enforced=enforced,
    )


def keep_record(files: WatchFiles, record: TripRecord) -> None:
    """Make the record durable, on a full disk in the space that was kept for it. Raise `LaneError`."""
    try:
        files.write_trip(record)
    except LaneError:
        if not release(files.folder / RESERVE):
            raise
        files.write_trip(record)


def _keep(post: Post, record: TripRecord) -> None:
    """As `keep_record`; never raises."""
    try:
        keep_record(post.files, record)
    except LaneError as error:
        post.log.error("the trip cannot be recorded; the lane is dead", error=error.message, reason=record.reason)


def _mark_production(post: Post, record: TripRecord) -> None:
    recorded = production.load(post.state.production)
    server = post.spec.services[0].container_id
    if recorded.current is None or recorded.tripped is not None or server not in recorded.current.container_ids:
        return
    tripped = Tripped(at=record.at, reason=f"{record.rule}: {record.reason}")
    production.save(post.state.production, replace(recorded, tripped=tripped))


def _await_gone(post: Post, killers: Sequence[Killer]) -> None:
    deadline = post.clock.monotonic() + GONE_WITHIN_S
    while [killer for killer in killers if not killer.gone] and post.clock.monotonic() < deadline:
        post.clock.sleep(LOOK_EVERY_S)
