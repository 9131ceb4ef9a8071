"""Wait until a service is ready, by climbing the readiness ladder (core/health.py) again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from lanectl.actions.errand import Errand
from lanectl.actions.look import Asked, Eyes, Served, look
from lanectl.core import facts as boot_facts
from lanectl.core.facts import FactValue
from lanectl.core.health import Reason, Sample, Verdict, judge, judge_before_http
from lanectl.core.log_lines import one_line
from lanectl.core.serving import DEFAULT_READY_TIMEOUT_S
from lanectl.errors import CandidateFailed
from lanectl.ports import Clock, ContainerEngine, Prober
from lanectl.probes.logs import LogWatch, ReadyService

__all__ = ["ReadyReport", "Served", "look", "wait_ready"]

# Readiness must be noticed within 50 ms (median). A look every 20 ms is on average half of that late, which leaves
# some 40 ms for whose port it is and for the completion; a look at a port where nothing listens costs about 0.3 ms.
LOOK_EVERY_S = 0.02
# An inspect costs the Docker daemon about 2 ms. The end of the log brings the news of an exit at once; this is for
# what the log does not tell: paused, restarted, an exit whose log another process still holds open.
INSPECT_EVERY_S = 0.25
# After the log has ended, every look asks the engine, for this long; if the container still runs then, the log stream
# broke (a daemon that was restarted under a running container), and it is read again from the start.
LOG_END_SETTLES_S = 1.0
# How long the last lines may take to arrive after an exit (the log then ends) or a fatal line (it may not).
TAIL_WITHIN_S = 1.0
TAIL_AFTER_FATAL_S = 0.3
# A demanded boot fact may reach us after the first answer: log and port are two channels.
FACTS_WITHIN_S = 1.0
PROGRESS_EVERY_S = 0.2  # a chatty boot writes thousands of lines; a person reads none of them faster than this


@dataclass(frozen=True, slots=True)
class ReadyReport:
    """A service that is ready: after how long and how many looks, its boot facts, whose port it is, what answers."""

    verdict: Verdict
    seconds: float
    facts: dict[str, FactValue]
    owner: str
    looks: int
    model: str | None


def wait_ready(
    *,
    engine: ContainerEngine,
    prober: Prober,
    clock: Clock,
    container_id: str,
    service: ReadyService,
    served: Served,
    port_was_free: bool,
    check: Callable[[], None],
    progress: Callable[[str], None],
    deadline: float | None,
) -> ReadyReport:
    """Given a started container, return once its service is ready by the whole ladder, demanded boot facts included.

    `deadline` (of clock.monotonic()) shortens the spec's time-out. `check` is called in every look and may raise.
    Raise `CandidateFailed` (step `ready:<service>`, with the log's tail) on a final verdict or time-out.
    """
    began = clock.monotonic()
    timeout_s = service.ready.timeout_s if service.ready is not None else DEFAULT_READY_TIMEOUT_S
    until = began + timeout_s if deadline is None else min(began + timeout_s, deadline)
    eyes = Eyes(engine, prober, container_id, service, served, port_was_free)
    wait = _Wait(engine, clock, container_id, service, eyes, check, progress, until)
    try:
        return wait.climb()
    finally:
        wait.watch.close()


class _Wait:
    """One wait.

    The log is read and the HTTP rungs are climbed in threads of their own, so that a server that hangs keeps nobody
    from noticing that it died, or a person's Ctrl-C.
    """

    def __init__(
        self,
        engine: ContainerEngine,
        clock: Clock,
        container_id: str,
        service: ReadyService,
        eyes: Eyes,
        check: Callable[[], None],
        progress: Callable[[str], None],
        until: float,
    ) -> None:
        self._clock = clock
        self._service = service
        self._eyes = eyes
        self._check = check
        self._progress = progress
        self._began = clock.monotonic()
        self._until = until
        self._engine = engine
        self._id = container_id
        self.watch = LogWatch(engine, container_id, service).start()
        self._asked = Asked()
        self._log_ended_at: float | None = None
        self._inspected_at = float("-inf")
        self._told = ""
        self._told_at = float("-inf")

    def climb(self) -> ReadyReport:
        looks = 0
        self._inspect()
        while True:
            looks += 1
            self._ask_when_due()
            if self._look().ready:
                self._inspect()  # it answered: it must also still be running
                verdict = self._look()
                if verdict.ready:
                    return self._report(verdict, looks)
            self._clock.sleep(LOOK_EVERY_S)

    def _ask_when_due(self) -> None:
        """Climb the HTTP rungs in a thread, if all below them hold, and go on looking until it is back.

        Until then the climb before it stands for it: a time-out is best explained by the last whole answer.
        """
        if judge_before_http(self._sample(), self._service.ready) is not None:
            self._asked = Asked()
            return
        errand = Errand(self._eyes.ask, "ladder")
        while not errand.done(within_s=LOOK_EVERY_S):
            self._look()
        self._asked = errand.result()

    def _look(self) -> Verdict:
        """Look at the container and the log; return the verdict. Raise `CandidateFailed` when the wait is over."""
        self._check()
        self._mind_the_log()
        log_is_over = self.watch.ended and not self.watch.error
        if log_is_over or self._clock.monotonic() - self._inspected_at >= INSPECT_EVERY_S:
            self._inspect()
        verdict = self._judge()
        if verdict.final:
            self._fail(verdict)
        if not verdict.ready and self._clock.monotonic() >= self._until:
            raise self._failure(verdict.reason, self._too_late(verdict))
        self._tell(verdict)
        return verdict

    def _sample(self) -> Sample:
        return self._eyes.sample(self.watch, self._asked)

    def _judge(self) -> Verdict:
        return judge(self._sample(), self._service.ready)

    def _inspect(self) -> None:
        self._eyes.inspect()
        self._inspected_at = self._clock.monotonic()

    def _mind_the_log(self) -> None:
        """Read the log again where it broke off."""
        if not self.watch.ended:
            return
        now = self._clock.monotonic()
        if self._log_ended_at is None:
            self._log_ended_at = now
        elif now - self._log_ended_at >= LOG_END_SETTLES_S:
            self.watch.close()
            self.watch = LogWatch(self._engine, self._id, self._service).start()
            self._log_ended_at = None

    def _report(self, verdict: Verdict, looks: int) -> ReadyReport:
        facts = self._service.facts
        self.watch.wait_for(lambda: not boot_facts.unseen(facts, self.watch.facts), FACTS_WITHIN_S)
        values = self.watch.facts
        problems = boot_facts.problems(facts, values)
        if problems:
            raise self._failure(Reason.BOOT_FACT, "; ".join(problems))
        return ReadyReport(
            verdict=verdict,
            seconds=self._clock.monotonic() - self._began,
            facts=values,
            owner=str(self._asked.owner or ""),
            looks=looks,
            model=self._asked.http.model if self._asked.http is not None else None,
        )

    def _fail(self, verdict: Verdict) -> NoReturn:
        """Raise the final verdict, once the log's last lines have had their time to arrive."""
        if verdict.reason is Reason.EXITED:
            self.watch.wait_end(TAIL_WITHIN_S)
        elif verdict.reason in (Reason.FATAL_LOG, Reason.RESTARTING):
            self.watch.wait_end(TAIL_AFTER_FATAL_S)
        raise self._failure(verdict.reason, self._judge().detail)

    def _too_late(self, verdict: Verdict) -> str:
        waited = self._clock.monotonic() - self._began
        blind = f"; its log cannot be read: {self.watch.error}" if self.watch.error else ""
        return f"not ready after {waited:.0f} s: {verdict.detail}{blind}"

    def _failure(self, reason: Reason, what: str) -> CandidateFailed:
        name = self._service.name
        return CandidateFailed(f"ready:{name}", reason, f"{name}: {what}", self.watch.tail)

    def _tell(self, verdict: Verdict) -> None:
        now = self._clock.monotonic()
        if now - self._told_at < PROGRESS_EVERY_S:
            return
        line = one_line(self.watch.last_line)
        text = f"{verdict.detail}; log: {line}" if line else verdict.detail
        if text != self._told:
            self._told, self._told_at = text, now
            self._progress(text)
