"""Watching one container's log from its start: the marker, fatal lines, boot facts and the tail."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from lanectl.core.facts import FactValue, read_value
from lanectl.core.log_lines import last_words, matches_any, search
from lanectl.core.serving import Fact, Ready
from lanectl.errors import LaneError
from lanectl.ports import ContainerEngine, LogStream

TAIL_LINES = 200  # a vLLM start-up traceback with its argument dump is about 150 lines
MAX_LINE_CHARS = 4096  # vLLM prints its whole configuration on one line of about 3 KiB
CLOSE_WITHIN_S = 1.0  # a stream that does not end when told to is left behind; its thread is a daemon


class ReadyService(Protocol):
    """What is needed of a service to tell whether it is ready: a `Service` of a lane, or one that is owed."""

    @property
    def name(self) -> str: ...

    @property
    def ready(self) -> Ready | None: ...

    @property
    def facts(self) -> tuple[Fact, ...]: ...


class LogWatch:
    """Reads a container's log in a thread of its own until the log ends or `close()`. Values can be read at any time.

    `marker_seen` and `fatal_line` say what the service's `ready` asks for; `facts` holds the last value of each of its
    facts (a line printed again supersedes the first), None where none came yet.
    """

    def __init__(self, engine: ContainerEngine, container_id: str, service: ReadyService) -> None:
        ready = service.ready
        self._open: Callable[[], LogStream] = lambda: engine.logs(container_id, since_start=True, follow=True)
        self._marker = re.compile(ready.log) if ready is not None and ready.log is not None else None
        self._fatal = tuple(re.compile(pattern) for pattern in ready.fatal) if ready is not None else ()
        self._facts = tuple((fact.name, re.compile(fact.log)) for fact in service.facts)
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._values: dict[str, FactValue] = {fact.name: None for fact in service.facts}
        self._lock = threading.RLock()  # for the tail and the facts: both are copied while the thread writes
        self._news = threading.Condition(self._lock)
        self._stream: LogStream | None = None
        self._closed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"log of {service.name}", daemon=True)
        self.marker_seen = False
        self.fatal_line: str | None = None
        self.error = ""

    def start(self) -> LogWatch:
        self._thread.start()
        return self

    @property
    def ended(self) -> bool:
        """The log has ended (the container has too, or soon will), or cannot be read: then `error` says why."""
        return self._ended.is_set()

    @property
    def facts(self) -> dict[str, FactValue]:
        with self._lock:
            return dict(self._values)

    @property
    def tail(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._tail)

    @property
    def last_line(self) -> str:
        with self._lock:
            return self._tail[-1] if self._tail else ""

    @property
    def last_words(self) -> str:
        """The line of the tail that best says why the service failed."""
        return last_words(self.tail, self._fatal)

    def wait_end(self, within_s: float) -> bool:
        """Wait until the log has ended, at most `within_s`; return whether it has."""
        return self._ended.wait(within_s)

    def wait_for(self, seen: Callable[[], bool], within_s: float) -> bool:
        """Wait until `seen()` is true of what the log said so far, at most `within_s` or until it ends; return it."""
        with self._news:
            return self._news.wait_for(lambda: self._ended.is_set() or seen(), within_s) and seen()

    def close(self) -> None:
        """Stop reading. Never raises, never waits long."""
        self._closed = True
        stream = self._stream
        if stream is not None:
            stream.close()
        self._thread.join(CLOSE_WITHIN_S)

    def _read(self) -> None:
        try:
            self._stream = stream = self._open()
            if self._closed:
                stream.close()
            for line in stream:
                self._take(line[:MAX_LINE_CHARS])
        except LaneError as error:
            self.error = error.message
        finally:
            self._ended.set()
            with self._news:
                self._news.notify_all()

    def _take(self, line: str) -> None:
        with self._lock:
            self._tail.append(line)
            for name, pattern in self._facts:
                value = read_value(pattern, line)
                if value is not None:
                    self._values[name] = value
            self._news.notify_all()
        if self._marker is not None and not self.marker_seen:
            self.marker_seen = search(self._marker, line) is not None
        if self.fatal_line is None and matches_any(self._fatal, line):
            self.fatal_line = line
