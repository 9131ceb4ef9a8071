"""The part of a container engine that a readiness wait uses, for one container whose state a test sets by hand."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from lanectl.core.container import Container, Status
from lanectl.errors import LaneError

ID = "c0ffee"
_END = object()


class Lines:
    """A log stream that a test writes to."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        item = self._queue.get()
        if item is _END:
            self._queue.put(_END)
            raise StopIteration
        return str(item)

    def write(self, *lines: str) -> None:
        for line in lines:
            self._queue.put(line)

    def close(self) -> None:
        self._queue.put(_END)


@dataclass
class OneContainer:
    """One running container on the host's network. `processes` are its pids: by default, the test's own process."""

    container: Container | None = field(
        default_factory=lambda: Container(
            id=ID,
            name="dsv41",
            image_id="sha256:1",
            image_ref="sha256:1",
            status=Status.RUNNING,
            started_at="2026-01-01T00:00:00Z",
            network_mode="host",
        )
    )
    processes: frozenset[int] | None = frozenset({os.getpid()})
    lines: Lines = field(default_factory=Lines)
    error: LaneError | None = None
    log_error: LaneError | None = None
    inspected: int = 0
    streams: int = 0

    def inspect(self, ref: str) -> Container | None:
        self.inspected += 1
        if self.error is not None:
            raise self.error
        return self.container

    def pids(self, ref: str) -> frozenset[int] | None:
        return self.processes

    def logs(self, ref: str, *, since_start: bool = True, follow: bool = True) -> Lines:
        self.streams += 1
        if self.log_error is not None:
            raise self.log_error
        return self.lines

    def now(self, **changes: Any) -> None:
        assert self.container is not None
        self.container = replace(self.container, **changes)

    def exit(self, code: int, *last_lines: str, **changes: Any) -> None:
        """End as an engine shows it: the last lines, the end of the log, the status."""
        self.lines.write(*last_lines)
        self.now(status=Status.EXITED, exit_code=code, **changes)
        self.lines.close()
