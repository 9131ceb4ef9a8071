"""The phases of a swap and which may follow which. An illegal transition raises: it is a fault in lanectl."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """What is true once the phase is durably recorded; docs/design/journal.md has the table."""

    OPENED = "OPENED"
    PREFLIGHTED = "PREFLIGHTED"
    ARMED = "ARMED"
    QUIESCED = "QUIESCED"
    BOOTED = "BOOTED"
    READY = "READY"
    VERIFIED = "VERIFIED"
    MEASURED = "MEASURED"
    COMMITTED = "COMMITTED"
    RELEASED = "RELEASED"
    RESTORED = "RESTORED"
    CLOSED = "CLOSED"


class IllegalTransition(Exception):
    """A phase was recorded that cannot follow the one before."""


_FORWARD = {
    Phase.OPENED: {Phase.PREFLIGHTED, Phase.CLOSED},
    Phase.PREFLIGHTED: {Phase.ARMED, Phase.CLOSED},
    Phase.ARMED: {Phase.QUIESCED},
    Phase.QUIESCED: {Phase.BOOTED},
    Phase.BOOTED: {Phase.READY},
    Phase.READY: {Phase.VERIFIED},
    Phase.VERIFIED: {Phase.MEASURED, Phase.COMMITTED},
    Phase.MEASURED: {Phase.COMMITTED},
    Phase.COMMITTED: {Phase.RESTORED, Phase.CLOSED},
    Phase.RELEASED: {Phase.RESTORED, Phase.CLOSED},
    Phase.RESTORED: {Phase.CLOSED},
    Phase.CLOSED: set(),
}

# From ARMED on production is owed, and the way back is open from everywhere: the return leg is not an error path.
_RETURNS_FROM = (Phase.ARMED, Phase.QUIESCED, Phase.BOOTED, Phase.READY, Phase.VERIFIED, Phase.MEASURED)


def followers(phase: Phase) -> frozenset[Phase]:
    """Return the phases that may follow `phase`."""
    nexts = set(_FORWARD[phase])
    if phase in _RETURNS_FROM:
        nexts.add(Phase.RELEASED)
    return frozenset(nexts)


def advance(phase: Phase, to: Phase) -> Phase:
    """Given the phase and the next one, return it. Recording the same phase again is fine (a recovery repeats itself).

    Raise `IllegalTransition` when `to` cannot follow.
    """
    if to is phase:
        return to
    if to not in followers(phase):
        raise IllegalTransition(f"{to} cannot follow {phase}")
    return to


class Outcome(StrEnum):
    """How a swap closed. `failed:<step>` and `recovered:<step>` carry the step where it went wrong."""

    MEASURED = "measured"
    PROVEN = "proven"  # a swap without --measure and without --keep: booted, proven, and production restored
    PROMOTED = "promoted"
    STARTED = "started"  # start, restart, or a recovery after a reboot
    SUPERSEDED = "superseded"  # its restore gave up, and a later command took over what it owed
    REFUSED = "refused"
    FAILED = "failed"
    RECOVERED = "recovered"
    INTERRUPTED = "interrupted"
    TRIPPED = "tripped"  # the watchdog killed what was owed: nothing serves until a person says so


def outcome_text(outcome: Outcome, step: str = "") -> str:
    """Return the outcome as it is written in the closing record."""
    return f"{outcome}:{step}" if outcome in (Outcome.FAILED, Outcome.RECOVERED) and step else str(outcome)
