"""One watched container as a watcher sees it: its first process at once, the engine's word about a second later."""

from __future__ import annotations

from lanectl.actions.watch_eyes import Seen
from lanectl.core.watch import Sidecar
from lanectl.probes.first_process import FirstProcess
from lanectl.store.process import ProcessId, alive
from lanectl.store.watch import WatchedService

BY_PIDFD, BY_ENGINE, NOT_STARTED = "pidfd", "engine", "not started"


class Watched:
    """A service of the watched lane.

    `first`: its first process, held while it lives. `gone`: the process that was known has ended. `seen`: what the
    engine said last. `as_sidecar` and `may_run` follow from these, and are kept because every look asks for them.
    """

    def __init__(self, service: WatchedService) -> None:
        self.service = service
        self.first: FirstProcess | None = None
        self.gone = False
        self.seen: Seen | None = None
        self.as_sidecar = Sidecar.UNKNOWN
        self.may_run = True
        self._known: ProcessId | None = None
        if service.first is not None:
            self.hold(service.first)

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def as_known(self) -> WatchedService:
        """The service with the first process that is known of it by now."""
        return WatchedService(self.service.name, self.service.container_id, self._known)

    def hold(self, identity: ProcessId) -> None:
        """Hold this process from now on, unless it is held already, or older than the one that is: an old answer.

        One that has ended is gone.
        """
        if self._known is not None and (identity == self._known or identity.start_time < self._known.start_time):
            return
        if self.first is not None:
            self.first.close()
        self.first = FirstProcess.hold(identity)
        self._known = identity
        self.gone = self.first is None and not alive(identity)
        self._conclude()

    def ended(self) -> None:
        """The process that is held has ended."""
        if self.first is not None:
            self.first.close()
        self.first, self.gone = None, True
        self._conclude()

    def look(self, seen: Seen | None, *, follow: bool) -> None:
        """Take in what the engine said. `follow` as in `meet`."""
        self.seen = seen
        self.meet(seen.first if seen is not None else None, follow=follow)
        self._conclude()

    def meet(self, first: ProcessId | None, *, follow: bool) -> None:
        """Somebody saw this first process: hold it if none was known, with `follow` in the known one's place too."""
        if first is not None and (follow or self._known is None):
            self.hold(first)

    def _conclude(self) -> None:
        self.as_sidecar, self.may_run = self._as_sidecar(), self._may_run()

    def _as_sidecar(self) -> Sidecar:
        """How it is. A sidecar that was started again is gone: the one that the server knew is."""
        said = self.seen if self.seen is not None and not self.seen.error else None
        if self.gone or (said is not None and (not said.runs or said.first not in (None, self._known))):
            return Sidecar.GONE
        if said is not None and said.paused:
            return Sidecar.PAUSED
        return Sidecar.RUNNING if self.first is not None or said is not None else Sidecar.UNKNOWN

    def _may_run(self) -> bool:
        """False when it is known not to run: it has ended, or has not started yet."""
        if self.first is not None:
            return True
        if self.gone:
            return False
        return self.seen is None or bool(self.seen.error) or self.seen.runs

    def kill_by(self, since: float) -> str:
        """How it can be killed: `pidfd`, `engine` (which answered since then), else why it cannot be."""
        if self.first is not None and self.first.killable:
            return BY_PIDFD
        if self.seen is None or self.seen.asked_at < since:
            return "the engine has not answered yet"
        if self.seen.error or self.seen.container is None:
            return self.seen.error or "there is no such container"
        return BY_ENGINE if self.seen.runs else NOT_STARTED
