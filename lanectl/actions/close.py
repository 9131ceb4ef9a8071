"""The end of a swap: production.json, restart policies, the closing record."""

from __future__ import annotations

from dataclasses import replace

from lanectl.actions.bring_up import give_back_restart
from lanectl.actions.station import Station
from lanectl.actions.steps import WayBack
from lanectl.core.container import Container
from lanectl.core.journal import Kind, SwapState
from lanectl.core.owed import Desired, Owed, OwedService, Production, keep_tag
from lanectl.core.recovery import Observed
from lanectl.core.swap import Outcome, Phase, followers, outcome_text
from lanectl.errors import LaneError, Unfinished, Unreachable
from lanectl.store.journal import Journal

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

    production.json is written before the closing record: a death between the two is closed again by a recovery.
    Raise `LaneError` when a restart policy could not be given back: look again, it may run no more. On the `last_try`
    that is told and stops nothing, unless the engine is away.
    """
    state = journal.state
    if state.owed is not None and not refused:
        _record_production(station, state, observed)
        for seen in observed.target:
            if seen.container is not None:
                _give_back(station, seen.container, seen.owed, last_try)
        if Phase.RESTORED in followers(state.phase):
            back.record(Kind.PHASE, Phase.RESTORED)
    outcome = closing_outcome(journal.state, refused=refused, recovering=recovering)
    back.record(Kind.CLOSED, data={"outcome": outcome})
    return outcome


def _let_go(station: Station, before: Production, after: Production) -> None:
    """Drop the keep-tags of images that were kept for a rollback and that no lane to go back to uses any more."""
    dropped = _images(before) - _images(after)
    for image_id in dropped:
        try:
            station.engine.drop_image_tag(keep_tag(image_id))
        except LaneError as error:
            # A tag too many keeps an image too many, nothing else.
            station.log.warning("a keep-tag was not removed", image=image_id, error=error.message)


def _images(production: Production) -> set[str]:
    lanes = [lane for lane in (production.current, production.previous) if lane is not None]
    return {service.image_id for lane in lanes for service in lane.services}


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


def _record_production(station: Station, state: SwapState, observed: Observed) -> None:
    if state.owed is None:
        raise AssertionError("nothing owed")
    ids = {seen.owed.name: seen.container.id for seen in observed.target if seen.container is not None}
    now = _with_ids(state.owed, ids)
    before = station.production()
    if state.committed:
        after = replace(before, current=now, previous=_previous(state, before, now), desired=Desired.SERVING)
        after = replace(after, tripped=None)
    else:
        after = replace(before, current=now)
    if after == before:
        return
    try:
        station.record_production(after)
    except LaneError as error:
        raise Unfinished(
            f"{now.label} is serving and proven, but that could not be recorded: {error.message}",
            error.hint or "cure the cause, then run `lanectl recover`",
        ) from error
    _let_go(station, before, after)


def _previous(state: SwapState, before: Production, now: Owed) -> Owed | None:
    """What a rollback goes back to: the production this swap replaced (`current` still, unless this is a repeat)."""
    if before.current is not None and before.current.container_ids != now.container_ids:
        return before.current
    return state.former or before.previous


def _with_ids(owed: Owed, ids: dict[str, str]) -> Owed:
    services = tuple(
        replace(service, container_id=ids.get(service.name, service.container_id)) for service in owed.services
    )
    return replace(owed, services=services)


def _give_back(station: Station, container: Container, owed: OwedService, last_try: bool) -> None:
    try:
        give_back_restart(station, owed, container)
    except LaneError as error:
        # An engine that restarts right now stops what has no policy yet: only one more look tells whether it serves.
        if not last_try or isinstance(error, Unreachable):
            raise
        # It was proven again and again; its policy only matters at the next reboot, which recover covers too.
        station.log.warning("restart policy not given back", container=container.name, error=error.message)
