"""Where things lie under a site's state/ directory. Directories are 0700, files 0600."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lanectl.store.files import exists, names


@dataclass(frozen=True, slots=True)
class StateDir:
    """The paths of one site's state."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def production(self) -> Path:
        return self.root / "production.json"

    @property
    def audit(self) -> Path:
        return self.root / "audit.jsonl"

    @property
    def swaps(self) -> Path:
        return self.root / "swaps"

    @property
    def recreate(self) -> Path:
        """Create arguments of containers that are owed: they may hold secrets, so they are never printed."""
        return self.root / "recreate"

    @property
    def gates(self) -> Path:
        """Verdicts of gates by map and image."""
        return self.root / "gates"

    @property
    def local(self) -> Path:
        """The local engine's containers."""
        return self.root / "local"

    @property
    def watch(self) -> Path:
        """What each watchdog is told, says, and leaves behind."""
        return self.root / "watch"

    def swap(self, swap: str) -> Path:
        return self.swaps / swap

    def journal(self, swap: str) -> Path:
        return self.swap(swap) / "journal.jsonl"

    def logs(self, swap: str) -> Path:
        """Saved container logs of a swap."""
        return self.swap(swap) / "logs"

    def swap_ids(self) -> tuple[str, ...]:
        """Return the ids of all swaps, oldest first (ids begin with their UTC time). Raise `StoreError`."""
        return tuple(name for name in names(self.swaps) if exists(self.journal(name)))
