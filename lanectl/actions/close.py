"""The end of a swap: production.json, restart policies, the closing record."""

from __future__ import annotations

from dataclasses import replace

from lanectl.actions.bring_up import give_back_restart
from lanectl.actions.debts import settle_debts
from lanectl.actions.record import record_production
from lanectl.actions.station import Station
from lanectl.actions.steps import WayBack
from lanectl.core.container import Container
from lanectl.core.health import another_run
from lanectl.core.journal import Kind, SwapState
from lanectl.core.owed import OwedService, Tripped
from lanectl.core.recovery import Observed
from lanectl.core.swap import Outcome, Phase, followers, outcome_text
from lanectl.errors import EngineError, LaneError, Unfinished, Unreachable
from lanectl.store.journal import Journal

CURE = "cure the cause, then run `lanectl recover`"
BROUGHT_BACK = ("start", "restart", "recover")  # operations that only bring production up


def close_swap(
    station: Station,
    journal: Journal,
    back: WayBack,
    observed: Observed,
    *,
    refused: bool,
    recovering: bool,
    last_try: bool = False,
) -> str:
    """Record that what is owed serves (or that nothing was touched), and close; return the outcome's text.

    production.json is written before the closing record: a death between the two is closed again by a recovery. Raise
    `Unfinished` when either could not be written, unless nothing was touched. Raise `LaneError` when a restart policy
    could not be given back, or what was proven runs no more: look again. On the `last_try` a policy that could not be
    given back is told and stops nothing, unless the engine is away.
    """
    state = journal.state
    if observed.tripped is not None and not refused:
        return _close_tripped(station, back, state, observed)
    if not refused:
        _record(station, state, observed)
        for seen in observed.target:
            if seen.container is not None:
                _give_back(station, seen.container, seen.owed, last_try)
        if state.owed is not None and Phase.RESTORED in followers(state.phase):
            back.record(Kind.PHASE, Phase.RESTORED)
    outcome = closing_outcome(journal.state, refused=refused, recovering=recovering)
    if not back.record(Kind.CLOSED, data={"outcome": outcome}) and not refused:
        raise Unfinished(_what(state) + ", but the swap could not be closed", CURE)
    return outcome


def _close_tripped(station: Station, back: WayBack, state: SwapState, observed: Observed) -> str:
    """What is owed was killed by its watchdog: record that nothing starts it until a person says so, and close."""
    _record(station, state, observed)
    production = station.production()
    try:
        if production.tripped is None:
            tripped = Tripped(station.clock.wall(), observed.tripped or "")
            station.record_production(replace(production, tripped=tripped))
    except LaneError as error:
        raise Unfinished(f"the lane tripped, but that could not be recorded: {error.message}", CURE) from error
    back.record(Kind.CLOSED, data={"outcome": Outcome.TRIPPED, "reason": observed.tripped})
    return outcome_text(Outcome.TRIPPED)


def closing_outcome(state: SwapState, *, refused: bool, recovering: bool) -> str:
    """Given the folded journal, return how it ends."""
    if refused:
        return outcome_text(Outcome.REFUSED)
    if state.committed:
        return outcome_text(Outcome.PROMOTED)
    if recovering:
        return outcome_text(Outcome.RECOVERED, state.failure.step if state.failure else state.left_at)
    if state.interrupted:
        return outcome_text(Outcome.INTERRUPTED)
    if state.kind in BROUGHT_BACK:
        return outcome_text(Outcome.STARTED)
    if state.failure is not None:
        return outcome_text(Outcome.FAILED, state.failure.step)
    return outcome_text(Outcome.MEASURED if "measure" in state.done else Outcome.PROVEN)


def _record(station: Station, state: SwapState, observed: Observed) -> None:
    """Record what serves, and that what this operation took over is settled. Raise `Unfinished` when that fails."""
    try:
        record_production(station, state, observed.target)
        settle_debts(station, state)
    except LaneError as error:
        why = f", but that could not be recorded: {error.message}"
        raise Unfinished(_what(state) + why, error.hint or CURE) from error


def _what(state: SwapState) -> str:
    return f"{state.owed.label} is serving and proven" if state.owed else "nothing is owed"


def _give_back(station: Station, container: Container, owed: OwedService, last_try: bool) -> None:
    try:
        give_back_restart(station, owed, container)
    except LaneError as error:
        # An engine that restarts right now stops what has no policy yet: only one more look tells whether it serves.
        if not last_try or isinstance(error, Unreachable):
            raise
        # It was proven again and again; its policy only matters at the next reboot, which recover covers too.
        station.log.warning("restart policy not given back", container=container.name, error=error.message)
    if container.restart != owed.restart:
        _still_the_proven_run(station, container)


def _still_the_proven_run(station: Station, proven: Container) -> None:
    """Raise `EngineError` unless this very run goes on: the call may have waited for an engine that died, and with it
    what had no policy yet."""
    now = station.engine.inspect(proven.id)
    if now is None or not now.running or another_run(proven, now):
        raise EngineError(f"{proven.name} was proven, and then did not stay up while it got its restart policy back")
