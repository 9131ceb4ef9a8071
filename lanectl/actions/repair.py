"""Replace a damaged journal by one that says what can still be known: the last target it names, and nothing forward."""

from __future__ import annotations

from pathlib import Path

from lanectl.actions import engine_hints
from lanectl.actions.progress import Progress
from lanectl.actions.station import Station
from lanectl.core.codec import to_json
from lanectl.core.journal import DamagedJournal, Kind, NeverOpened, Salvage, salvage
from lanectl.core.swap import Phase
from lanectl.errors import Dark
from lanectl.store.files import explained, read_bytes, sync_dir
from lanectl.store.journal import Journal, is_closed, load

ASIDE = "journal.damaged.jsonl"
FRESH = "journal.repaired.jsonl"


def repair_damaged(station: Station, progress: Progress) -> None:
    """Set every damaged journal aside and write a new one from its ARMED (or COMMITTED) record.

    Raise `Dark` when a damaged journal names no target: what is owed cannot be known then. The caller holds the lock.
    """
    for swap in station.state.swap_ids():
        path = station.state.journal(swap)
        if is_closed(path):
            continue  # it owes nothing any more, whatever became of its earlier lines
        try:
            load(path)
        except NeverOpened:
            continue
        except DamagedJournal as damage:
            known = salvage(read_bytes(path) or b"")
            if not known.target_known:
                raise _unknowable(station, path, damage) from damage
            progress.note(f"{damage.message}; restoring from the last target it names")
            _rewrite(station, swap, path, known, damage)


def _rewrite(station: Station, swap: str, path: Path, known: Salvage, damage: DamagedJournal) -> None:
    """Write the new journal beside the damaged one, then change places: a death in between leaves one of them whole."""
    opened = known.opened
    fresh = path.with_name(FRESH)
    fresh.unlink(missing_ok=True)
    journal = Journal.create(
        fresh,
        station.clock,
        swap,
        {
            "lane": opened.lane if opened else "unknown",
            "kind": opened.kind if opened else "swap",
            "command": list(station.command),
            "boot_id": station.boot_id,
            "deadline": round(station.clock.monotonic() + station.site.thresholds.swap_deadline_s, 3),
            "keep": opened.keep if opened else False,
            "from_dark": opened.from_dark if opened else False,
            "candidates": [to_json(planned) for planned in opened.candidates] if opened else [],
            "shm": list(opened.shm) if opened else [],
            "guest": to_json(opened.guest) if opened else None,
            "repairs": damage.message,
        },
    )
    journal.append(Kind.PHASE, Phase.PREFLIGHTED)
    journal.append(Kind.ARMED, data={"target": to_json(known.target), "guard": None})
    journal.close()
    with explained(path, "set aside"):
        aside = path.with_name(ASIDE)
        aside.unlink(missing_ok=True)
        aside.hardlink_to(path)
        fresh.replace(path)
        sync_dir(path.parent)


def _unknowable(station: Station, path: Path, damage: DamagedJournal) -> Dark:
    return Dark(
        f"DARK: {damage.message}, and no readable line of it names what is owed",
        f"look at what runs (`lanectl status`, {engine_hints.show_containers(station)}); "
        f"move {path.parent} out of state/swaps, then "
        "`lanectl start` brings up what state/production.json records",
    )
