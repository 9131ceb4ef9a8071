"""The one way back: make the owed lane the only running one, and prove it. Good and bad swaps end here.

Level-triggered: look, ask `core.recovery.next_move`, do that one thing, look again. It can be run twice, interrupted
anywhere, and taken up by somebody else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from lanectl.actions.bring_up import bring_up
from lanectl.actions.close import close_swap
from lanectl.actions.discard import discard
from lanectl.actions.gone import wait_free
from lanectl.actions.observe import observe
from lanectl.actions.park import hold, park
from lanectl.actions.progress import Progress
from lanectl.actions.record import record_production
from lanectl.actions.station import Station
from lanectl.actions.steps import WayBack
from lanectl.actions.watching import end, stand_by, trip_of
from lanectl.core.container import Container
from lanectl.core.journal import Kind, SwapState
from lanectl.core.owed import Owed, OwedService
from lanectl.core.recovery import Act, Move, Observed, next_move, resting_name
from lanectl.core.swap import Phase, followers
from lanectl.errors import CandidateFailed, Dark, EngineUnknown, LaneError, StillHeld, Unfinished, Unreachable
from lanectl.store.journal import Journal

# A swap needs at most: discard, release, settle, start, prove, close. Four times that bounds a world that keeps
# changing under us without ever cutting a normal restore short.
MAX_MOVES = 24
# A daemon that restarts is back within seconds; a machine that is shutting one down for an upgrade takes up to two
# minutes. Longer is DARK, and `recover` takes it up again.
ENGINE_BACK_WITHIN_S = 120.0
FIRST_RETRY_S = 0.5
LAST_RETRY_S = 10.0


@dataclass
class Walk:
    """What one walk back has found out so far. `broken`: what was started did not prove itself, so it is stopped first
    when it is tried again; after any other failure what runs may well be serving, and is left to. `stopped`: services
    whose stop this walk has seen the end of, whether or not that could be recorded."""

    released: bool = False
    proven: bool = False
    broken: bool = False
    stopped: frozenset[str] = frozenset()
    attempt: int = 1
    containers: dict[str, Container] = field(default_factory=dict)


def restore(station: Station, journal: Journal, progress: Progress, *, recovering: bool) -> str:
    """Bring back what the journal says is owed, prove it, close the journal; return the outcome's text.

    `recovering`: the swap's own process is gone and somebody else walks its way back. Raise `Dark` when it cannot be
    brought back; the journal stays open, with the reason in a `stuck` record. Raise `Unfinished` when it serves and
    that could not be recorded, or when nothing is owed yet and something that was made could not be removed.
    """
    back = WayBack(journal, station.log)
    walk = Walk()
    armed = journal.state.armed
    if journal.state.committed:
        _note_promotion(station, journal)
    if not armed and not any(record.kind is Kind.BEGIN for record in journal.records):
        # Nothing was made, so there is nothing to look for: the engine may be the very reason of the refusal.
        return close_swap(station, journal, back, Observed(), refused=True, recovering=recovering)
    patience_s = ENGINE_BACK_WITHIN_S if armed else 0.0
    try:
        return _retrying(
            station, progress, walk, patience_s, lambda: _walk(station, journal, back, progress, walk, recovering)
        )
    except Unfinished:
        raise
    except LaneError as error:
        if not armed:
            raise Unfinished(
                f"production was not touched, but what was made for the swap is not removed yet: {error.message}",
                "run `lanectl recover` once the engine answers",
            ) from error
        raise _dark(station, journal, back, error) from error


def _note_promotion(station: Station, journal: Journal) -> None:
    """Record the promoted lane as production before it is proven again: should it not come back, a rollback goes to the
    lane before it. That this fails stops no restore; it is recorded again at the end."""
    try:
        record_production(station, journal.state)
    except LaneError as error:
        station.log.error("promotion not recorded yet; the restore goes on", error=error.message)


def _retrying(station: Station, progress: Progress, walk: Walk, patience_s: float, once: Callable[[], str]) -> str:
    """Walk, again after a failure: `restore_attempts` times, or for `patience_s` while the engine is away."""
    from tenacity import (
        RetryCallState,
        Retrying,
        retry_if_exception_type,
        retry_if_not_exception_type,
        wait_exponential,
    )

    began = station.clock.monotonic()

    def enough(call: RetryCallState) -> bool:
        error = call.outcome.exception() if call.outcome else None
        if isinstance(error, Unreachable):
            return station.clock.monotonic() - began >= patience_s
        return walk.attempt >= station.site.thresholds.restore_attempts

    def again(call: RetryCallState) -> None:
        error = call.outcome.exception() if call.outcome else None
        if not isinstance(error, Unreachable):
            walk.attempt += 1
        walk.released = walk.proven = False
        progress.note(f"restore: {error}; trying again")

    retrying = Retrying(
        retry=retry_if_exception_type(LaneError) & retry_if_not_exception_type(Unfinished),
        stop=enough,
        wait=wait_exponential(multiplier=FIRST_RETRY_S, min=FIRST_RETRY_S, max=LAST_RETRY_S),
        sleep=station.clock.sleep,
        before_sleep=again,
        reraise=True,
    )
    return retrying(once)


def _walk(station: Station, journal: Journal, back: WayBack, progress: Progress, walk: Walk, recovering: bool) -> str:
    for _ in range(MAX_MOVES):
        observed = observe(station, journal.state, released=walk.released, proven=walk.proven)
        observed = replace(observed, tripped=_trip(station, journal.state), stopped=walk.stopped)
        move = next_move(journal.state, observed)
        if move.act is Act.NOTHING:
            return journal.state.closed or ""
        if move.act in (Act.CLOSE, Act.REFUSE):
            _note_released(journal, back, observed, progress)
            refused, last_try = move.act is Act.REFUSE, walk.attempt >= station.site.thresholds.restore_attempts
            return close_swap(
                station, journal, back, observed, refused=refused, recovering=recovering, last_try=last_try
            )
        _MOVES[move.act](_Scene(station, journal, back, progress, walk, observed, move))
    raise LaneError(f"the engine did not settle within {MAX_MOVES} looks: something else changes its containers")


@dataclass(frozen=True)
class _Scene:
    station: Station
    journal: Journal
    back: WayBack
    progress: Progress
    walk: Walk
    observed: Observed
    move: Move

    def seen(self, name: str) -> tuple[OwedService, Container | None]:
        for seen in self.observed.target:
            if seen.owed.name == name:
                return seen.owed, seen.container
        raise AssertionError(name)


def _discard(scene: _Scene) -> None:
    scene.walk.released = False
    for container in scene.observed.strays:
        stand_by(scene.station, container)
    for container in scene.observed.strays:
        scene.progress.ticker(f"removing {container.name}")
        scene.back.run(
            f"discard:{container.name}",
            lambda container=container: discard(scene.station, scene.journal.state, container),  # type: ignore[misc]
            scene.walk.attempt,
        )
    for container in scene.observed.strays:
        end(scene.station, container)


def _trip(station: Station, state: SwapState) -> str | None:
    """Why the watchdog killed what is owed, None when it did not (or nothing is owed)."""
    if state.owed is None or state.owed.watchdog is None:
        return None
    record = trip_of(station, state.owed.server.container_id)
    return None if record is None else f"{record.rule}: {record.reason}"


def _retire(scene: _Scene) -> None:
    scene.walk.released = False
    for rival in scene.observed.rivals:
        container, owed = rival.container, rival.owed
        if container is None:
            raise AssertionError("a rival is active")

        stand_by(scene.station, container)

        def effect(ref: str = container.id, owed: OwedService = owed) -> dict[str, Any]:
            return park(scene.station.engine, ref, owed, resting_name(scene.journal.state, owed))

        scene.back.run(f"retire:{container.name}", effect, scene.walk.attempt)


def _finish_stop(scene: _Scene) -> None:
    scene.walk.released = scene.walk.proven = False
    for name in reversed(scene.move.services):
        owed, container = scene.seen(name)
        if container is None:
            raise AssertionError(name)

        def effect(ref: str = container.id, owed: OwedService = owed) -> dict[str, Any]:
            return hold(scene.station.engine, ref, owed)

        scene.back.run(f"stop:{name}", effect, scene.walk.attempt)
        scene.walk.stopped |= {name}


def _release(scene: _Scene) -> None:
    state, owed = scene.journal.state, scene.journal.state.owed
    if owed is None:
        raise AssertionError("only a target waits for its port and memory")

    def effect() -> dict[str, Any]:
        down = [scene.seen(name)[0] for name in scene.move.services]
        return wait_free(
            scene.station,
            port=(owed.host, owed.port) if owed.server in down else None,
            memory=tuple(service.memory for service in down if service.memory),
            shm=_shm(state, owed, all_down=len(down) == len(owed.services)),
            unknown_is_free=True,
            progress=scene.progress,
        )

    scene.back.run("released", effect, scene.walk.attempt)
    scene.walk.released = True
    _note_released(scene.journal, scene.back, scene.observed, scene.progress)


def _shm(state: SwapState, owed: Owed, *, all_down: bool) -> tuple[str, ...]:
    """The shared-memory files nobody uses now: the candidate's, and the target's own before its sidecar boots."""
    candidate = () if state.committed else state.shm
    return tuple(dict.fromkeys((*candidate, *(owed.shm if all_down else ()))))


def _note_released(journal: Journal, back: WayBack, observed: Observed, progress: Progress) -> None:
    """Record RELEASED once: nothing of the candidate is left. After a commit there is nothing to release."""
    if not observed.strays and Phase.RELEASED in followers(journal.state.phase):
        back.record(Kind.PHASE, Phase.RELEASED)
        gone = "candidate gone; " if journal.state.candidates else ""
        progress.phase(Phase.RELEASED, f"{gone}bringing back what is owed")


def _settle(scene: _Scene) -> None:
    for name in scene.move.services:
        owed, container = scene.seen(name)
        if container is None:
            raise AssertionError(name)

        def effect(ref: str = container.id, to: str = owed.container_name) -> None:
            scene.station.engine.rename(ref, to)

        scene.back.run(f"settle:{name}", effect, scene.walk.attempt)


def _bring_up(scene: _Scene) -> None:
    """Start what is down and prove all of it: both moves climb the same ladder."""
    owed = scene.journal.state.owed
    if owed is None:
        raise AssertionError("only a target is brought up")

    def effect() -> dict[str, Any]:
        return bring_up(
            scene.station,
            owed,
            scene.observed.target,
            restart_first=scene.walk.broken,
            port_was_free=scene.walk.released,
            progress=scene.progress,
        )

    try:
        scene.back.run("prove", effect, scene.walk.attempt)
    except CandidateFailed:
        scene.walk.broken = True
        raise
    scene.walk.proven, scene.walk.broken = True, False


_MOVES: dict[Act, Callable[[_Scene], None]] = {
    Act.DISCARD: _discard,
    Act.RETIRE: _retire,
    Act.STOP: _finish_stop,
    Act.RELEASE: _release,
    Act.SETTLE: _settle,
    Act.START: _bring_up,
    Act.PROVE: _bring_up,
}


def _dark(station: Station, journal: Journal, back: WayBack, error: LaneError) -> Dark:
    owed = journal.state.owed
    what = owed.label if owed else "the site"
    curable = isinstance(error, Unreachable | EngineUnknown | StillHeld)
    back.record(Kind.STUCK, data={"reason": error.message, "cause": type(error).__name__, "curable": curable})
    station.log.error("DARK", lane=what, reason=error.message)
    return Dark(
        f"DARK: {what} is owed and could not be brought back: {error.message}",
        error.hint or "cure the cause, then run `lanectl recover`; `lanectl logs` shows what the lane said",
    )
