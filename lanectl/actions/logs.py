"""`lanectl logs`: what production says, what a swap's candidate said."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from lanectl.actions.station import Station
from lanectl.core.container import LABEL_LANE, LABEL_ROLE, LABEL_SITE, LABEL_SWAP, Container
from lanectl.errors import ExitCode, LaneError
from lanectl.store.files import names, read_text
from lanectl.store.journal import load


@dataclass(frozen=True, slots=True)
class Line:
    """One log line and the service it is of."""

    service: str
    text: str


def logs(station: Station, what: str | None, *, follow: bool, last: int | None) -> Iterator[Line]:
    """Given a lane, a swap's id or nothing (production), return its log lines, the `last` ones of each service.

    A lane or swap that is over has the logs that were saved when its containers were removed. With `follow`, lines of
    the last start only, then new ones until the containers end. Raise `LaneError` when there is nothing of that name.
    """
    containers = _containers(station, what)
    if containers:
        return _followed(station, containers, last) if follow else _so_far(station, containers, last)
    for swap in reversed(station.state.swap_ids()):
        folder = station.state.logs(swap)
        files = [folder / name for name in names(folder)] if what in (swap, _lane_of(station, swap)) else []
        saved = [file for file in files if file.suffix == ".log"]
        if saved:
            return (Line(file.stem, text) for file in saved for text in _last(read_text(file).splitlines(), last))
    raise LaneError(
        f"there is no container and no saved log of {what or 'production'}",
        "`lanectl status` shows what serves, `lanectl audit log` the swaps",
        ExitCode.USAGE,
    )


def _containers(station: Station, what: str | None) -> tuple[Container, ...]:
    """Return the containers of production, a lane or a swap that are there now."""
    owed = station.production().current
    if owed is not None and what in (None, owed.label):
        found = (station.engine.inspect(service.container_id) for service in owed.services)
        return tuple(container for container in found if container is not None)
    ours = station.engine.containers({LABEL_SITE: station.site.id})
    return tuple(one for one in ours if what in (one.labels.get(LABEL_LANE), one.labels.get(LABEL_SWAP)))


def _lane_of(station: Station, swap: str) -> str | None:
    try:
        return load(station.state.journal(swap)).lane
    except LaneError:
        return None


def _so_far(station: Station, containers: Iterable[Container], last: int | None) -> Iterator[Line]:
    for container in containers:
        stream = station.engine.logs(container.id, since_start=False, follow=False)
        yield from (Line(_service(container), text) for text in _last(stream, last))


def _followed(station: Station, containers: Iterable[Container], last: int | None) -> Iterator[Line]:
    """Yield what was logged since the last start, the `last` lines of it, then lines of all containers as they come."""
    streams = []
    for container in containers:
        said = list(station.engine.logs(container.id, follow=False))
        yield from (Line(_service(container), text) for text in _last(said, last))
        # The stream begins at the start again; what was said already is left out.
        streams.append((_service(container), islice(station.engine.logs(container.id), len(said), None)))
    yield from _together(streams)


def _together(streams: Sequence[tuple[str, Iterator[str]]]) -> Iterator[Line]:
    """Yield lines of all streams as they come, until all have ended."""
    arrived: queue.SimpleQueue[Line | None] = queue.SimpleQueue()

    def read(service: str, stream: Iterator[str]) -> None:
        try:
            for text in stream:
                arrived.put(Line(service, text))
        except LaneError as error:
            arrived.put(Line(service, f"(the log cannot be read any further: {error.message})"))
        finally:
            arrived.put(None)

    for service, stream in streams:
        threading.Thread(target=read, args=(service, stream), name=f"log of {service}", daemon=True).start()
    left = len(streams)
    while left:
        line = arrived.get()
        if line is None:
            left -= 1
        else:
            yield line


def _service(container: Container) -> str:
    return container.labels.get(LABEL_ROLE) or container.name


def _last(lines: Iterable[str], count: int | None) -> Iterable[str]:
    return lines if count is None else deque(lines, maxlen=count)
