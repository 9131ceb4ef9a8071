"""What to do next with a swap: one pure decision from the folded journal and what is observed.

The owner's own return leg, the guard and `lanectl recover` all follow these moves until one of them ends it, so the way
back is the same whoever walks it. Recovery never goes forward. docs/design/journal.md has the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lanectl.core.container import Container, Status
from lanectl.core.journal import Stuck, SwapState
from lanectl.core.owed import Owed, OwedService, Production, parked_name


@dataclass(frozen=True, slots=True)
class SeenService:
    """One owed service and the container that is (or was) it; None when the engine has no such container."""

    owed: OwedService
    container: Container | None


@dataclass(frozen=True, slots=True)
class Observed:
    """What an engine look found for one swap.

    `strays`: containers of this swap that are not owed, in stop order (server first). `target`: the owed services in
    start order. `released`: port, memory and shared memory were proven free since the last stray left. `proven`: the
    target answered a real request since it was last seen to run. `rivals`: containers of lanes that are not owed, and
    yet run or have the name they serve under, in stop order; they are stopped and parked, never removed.
    `tripped`: why the watchdog killed the target, None when it did not. `stopped`: services whose stop was seen to end
    since, which a journal that cannot be written does not say.
    """

    strays: tuple[Container, ...] = ()
    target: tuple[SeenService, ...] = ()
    released: bool = False
    proven: bool = False
    rivals: tuple[SeenService, ...] = ()
    tripped: str | None = None
    stopped: frozenset[str] = frozenset()


class Act(StrEnum):
    NOTHING = "nothing"
    LEAVE = "leave alone"
    TAKE_OVER = "stop the owner and take over"
    DISCARD = "remove what is not owed"
    RETIRE = "stop a parked lane that runs"
    STOP = "stop what is owed, to start it anew"
    RELEASE = "wait for port and memory"
    SETTLE = "give owed containers their names"
    START = "start what is owed"
    PROVE = "prove what is owed"
    CLOSE = "close"
    REFUSE = "close as refused"
    DARK = "dark"


@dataclass(frozen=True, slots=True)
class Move:
    """The next move and why. `services` names what it is about, in the order to act on them."""

    act: Act
    why: str
    services: tuple[str, ...] = ()


def next_move(state: SwapState, observed: Observed) -> Move:
    """Given an open swap whose lock we hold and what is observed, return the next move.

    The caller applies it, looks again and asks again; it bounds how often.
    """
    if state.closed is not None:
        return Move(Act.NOTHING, f"swap {state.swap} is closed: {state.closed}")
    if observed.strays:
        return Move(Act.DISCARD, "containers of the swap that are not owed are still there", _names(observed.strays))
    if not state.armed:
        return Move(Act.REFUSE, "production was never owed: nothing was touched")
    if observed.rivals:
        names = tuple(rival.owed.container_name for rival in observed.rivals)
        return Move(Act.RETIRE, "a parked lane runs beside what is owed", names)
    if state.owed is None:
        return Move(Act.CLOSE, "the swap began dark and nothing is owed")
    if observed.tripped is not None:
        return Move(Act.CLOSE, f"{state.owed.label} tripped and is no restore target: {observed.tripped}")
    return _bring_back(state, state.owed, observed)


def _bring_back(state: SwapState, owed: Owed, observed: Observed) -> Move:
    stopping = [name for name in state.stopping if name not in observed.stopped]
    asked = tuple(seen.owed.name for seen in observed.target if seen.owed.name in stopping and _up(seen.container))
    if asked:
        # The engine may still be at it, whoever asked: what answers now may be killed once it was believed.
        return Move(Act.STOP, f"{', '.join(asked)} was asked to stop and may end at any moment", asked)
    neither = tuple(seen.owed.name for seen in observed.target if _neither(seen.container))
    if neither:
        return Move(Act.STOP, f"{', '.join(neither)} neither serves nor has ended: it must end to be started", neither)
    down = tuple(seen.owed.name for seen in observed.target if not _up(seen.container))
    if down and not observed.released:
        return Move(Act.RELEASE, "port and memory are not proven free yet", down)
    misnamed = tuple(seen.owed.name for seen in observed.target if _misnamed(seen))
    if misnamed:
        return Move(Act.SETTLE, f"{', '.join(misnamed)} still has the name it was parked under", misnamed)
    if down:
        return Move(Act.START, f"{owed.label} is owed and not running", down)
    if not observed.proven:
        return Move(Act.PROVE, f"{owed.label} runs and has not answered a real request yet")
    return Move(Act.CLOSE, f"{owed.label} is running and proven")


def _up(container: Container | None) -> bool:
    return container is not None and container.status is Status.RUNNING


def _neither(container: Container | None) -> bool:
    """Neither serving nor ended: it can only be started anew once it is stopped."""
    return container is not None and container.status in (Status.PAUSED, Status.RESTARTING)


def _misnamed(seen: SeenService) -> bool:
    return seen.container is not None and seen.container.name != seen.owed.container_name


def _names(containers: tuple[Container, ...]) -> tuple[str, ...]:
    return tuple(container.name for container in containers)


def known_names(state: SwapState, service: OwedService) -> tuple[str, ...]:
    """The names under which an owed container may be found, should its id be gone."""
    return (
        service.container_name,
        parked_name(service.container_name, state.swap),
    )


def resting_name(state: SwapState, service: OwedService) -> str:
    """The name under which a service of a lane rests that is not owed. A lane that was woken for a rollback in vain
    cannot get the name that the lane it was to replace was parked under: both may have one container name."""
    parked = parked_name(service.container_name, state.swap)
    woken = not state.committed and state.guest is not None and service in state.guest.services
    return f"{parked}.again" if woken else parked


class Owner(StrEnum):
    """What the lock says: nobody holds it, we do, or a living process does."""

    FREE = "free"
    OURS = "ours"
    ALIVE = "alive"


def may_take(owner: Owner, *, past_deadline: bool, guard: bool) -> Move | None:
    """Given who holds the lock, return the move that keeps a recovery from acting, None when it may go on.

    A living owner in time is left alone; past the swap's deadline only the guard stops it.
    """
    if owner in (Owner.FREE, Owner.OURS):
        return None
    if past_deadline and guard:
        return Move(Act.TAKE_OVER, "the owner is past the swap's deadline")
    return Move(Act.LEAVE, "the swap's owner is alive")


def owed_without_swap(production: Production, running: bool) -> Move:
    """Given production and whether it runs, no swap open, return the move: start it after a reboot, else nothing."""
    if production.tripped is not None:
        return Move(Act.NOTHING, f"the watchdog tripped at {production.tripped.at}; a person must clear it")
    if production.owed is None:
        return Move(Act.NOTHING, "nothing is owed")
    if running:
        return Move(Act.NOTHING, f"{production.owed.label} is running")
    return Move(Act.START, f"{production.owed.label} is owed and not running")


# A cause that time can cure is tried again by the timer after 1, 2, 4 ... minutes, at most an hour apart, and twelve
# times in all: over half a day. Then only a person (`lanectl recover`) tries again: never a restore storm.
FIRST_RETRY_AFTER_S = 60.0
LONGEST_RETRY_AFTER_S = 3600.0
MOST_RETRIES = 12


def retry_after(stuck: Stuck) -> float | None:
    """Given why a restore gave up, return after how many seconds the timer tries again; None: only when asked."""
    if not stuck.curable or stuck.times > MOST_RETRIES:
        return None
    return min(FIRST_RETRY_AFTER_S * 2.0 ** (stuck.times - 1), LONGEST_RETRY_AFTER_S)
