"""Everything an action works with, in one place: the site, the ports, the stores. Built by wiring.py or by a test."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from lanectl.core.container import CreateArgs
from lanectl.core.owed import Production, Tripped
from lanectl.core.site import Site
from lanectl.ports import Clock, ContainerEngine, Gpus, Jobs, Prober
from lanectl.site.secrets import reveal, reveal_text
from lanectl.store import production as production_store
from lanectl.store import recreate
from lanectl.store.audit import Audit
from lanectl.store.layout import StateDir


class Logger(Protocol):
    """The part of structlog's logger that actions use."""

    def info(self, event: str, **details: Any) -> Any: ...

    def warning(self, event: str, **details: Any) -> Any: ...

    def error(self, event: str, **details: Any) -> Any: ...


class Measured(Protocol):
    """What a measurement leaves: JSON for the record, rows for a table, and whether every cell counts."""

    def to_json(self) -> dict[str, Any]: ...


class Measure(Protocol):
    """Measures a serving lane; see lanectl/measure/driver.py."""

    def __call__(
        self,
        *,
        base_url: str,
        model: str,
        profile: str,
        raw_path: Path,
        check: Callable[[], None],
        progress: Callable[[str], None],
        api_key: str | None,
        kv_log_tokens: int | None,
    ) -> Measured: ...


Converse = Callable[[str, str, int, Callable[[], None], str | None], int]


@dataclass(frozen=True, slots=True)
class Station:
    """The machine and site an action works on.

    `in_flight`: given a server's base URL and API key, how many requests it runs and holds waiting; None: cannot tell.
    `unit_enabled`: whether a systemd unit is enabled; None where systemd does not run. `converse`: send real prompts
    to a server and return how many were answered. `post_json`: POST to a server's control endpoint and return the JSON
    object it answers with, None when it answers otherwise.
    """

    site: Site
    state: StateDir
    engine: ContainerEngine
    prober: Prober
    gpus: Gpus
    clock: Clock
    jobs: Jobs
    audit: Audit
    log: Logger
    measure: Measure
    in_flight: Callable[[str, str | None], int | None]
    command: tuple[str, ...]
    boot_id: str
    environ: Mapping[str, str] = field(default_factory=dict)
    unit_enabled: Callable[[str], bool | None] = lambda name: None
    converse: Converse = lambda base_url, model, max_tokens, check, api_key: 0
    post_json: Callable[[str, str | None], dict[str, Any] | None] = lambda url, api_key: None

    def production(self) -> Production:
        """Return what production is. A trip that its watchdog could not write there yet is in it too; one whose record
        cannot be read is a trip."""
        recorded = production_store.load(self.state.production)
        current = recorded.current
        if current is None or current.watchdog is None or recorded.tripped is not None:
            return recorded
        from lanectl.store.files import StoreError
        from lanectl.store.watch import WatchFiles, watch_key

        try:
            trip = WatchFiles(self.state.watch / watch_key(current.server.container_id)).tripped()
        except StoreError as error:
            return replace(recorded, tripped=Tripped("an unknown time", f"its record cannot be read: {error.message}"))
        return recorded if trip is None else replace(recorded, tripped=Tripped(trip.at, f"{trip.rule}: {trip.reason}"))

    def record_production(self, production: Production) -> None:
        production_store.save(self.state.production, production)

    def reveal(self, args: CreateArgs) -> CreateArgs:
        """Put secrets in the place of their references, at the moment of creation. Raise `LaneError`."""
        return CreateArgs(args.name, reveal(args.body, self.site.secrets, self.environ))

    def api_key(self, reference: str | None) -> str | None:
        return None if reference is None else reveal_text(reference, self.site.secrets, self.environ)

    def keep_recreate(self, container_id: str, args: CreateArgs) -> str:
        return recreate.save(self.state.recreate, container_id, args)

    def kept_recreate(self, name: str) -> CreateArgs:
        return recreate.load(self.state.recreate, name)

    def new_swap_id(self, label: str) -> str:
        """Return `<utc>-<lane>-<random>`: sorts by time, and is fit for a container's and a directory's name.

        The time is to the millisecond: two swaps may begin within one second, and the newest is the one to follow.
        """
        stamp = self.clock.wall().replace("-", "").replace(":", "")
        return f"{stamp}-{label.replace('@', '-')}-{secrets.token_hex(3)}"
