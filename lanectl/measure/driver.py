"""Run requests together: connections opened first, one thread a stream, a barrier start, deadlines that always end.

The driving thread reads nothing. It looks every few milliseconds whether somebody asked to stop, and ends streams that
outlive their deadline by closing the socket under them.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lanectl.core.stats import NS_PER_S
from lanectl.measure.client import Stream

# How often the driving thread looks. Fifty looks a second cost nothing beside the streams, and a person who presses
# Ctrl-C, or a deadline, waits at most this long.
LOOK_EVERY_S = 0.02
# A stream whose socket was closed ends within microseconds; this bounds the wait for its thread on a busy machine.
END_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a request may take: to connect, until its first byte, and as a whole, both from its start. Seconds."""

    connect_s: float
    first_byte_s: float
    whole_s: float


def run_together(streams: Sequence[Stream], deadlines: Deadlines, check: Callable[[], None]) -> None:
    """Given streams that are not open yet, run them all at once to their ends; the outcomes are in their captures.

    If one cannot connect, none is sent: the cell is void anyway. Raise whatever `check` raises, after every socket is
    closed and every thread has ended.
    """
    try:
        for stream in streams:
            check()
            stream.open(deadlines.connect_s)
        if any(stream.capture.failure is not None for stream in streams):
            for stream in streams:
                stream.abort("not_sent: another stream of the cell could not connect")
            return
        _run_open(streams, deadlines, check)
    finally:
        for stream in streams:
            stream.close()


def _run_open(streams: Sequence[Stream], deadlines: Deadlines, check: Callable[[], None]) -> None:
    start = threading.Barrier(len(streams), action=lambda: _mark_start(streams))

    def follow(stream: Stream) -> None:
        try:
            start.wait()
        except threading.BrokenBarrierError:
            return  # the run was stopped before it began
        stream.exchange()

    threads = [threading.Thread(target=follow, args=(stream,), daemon=True) for stream in streams]
    try:
        for thread in threads:
            thread.start()
        while alive := [thread for thread in threads if thread.is_alive()]:
            check()
            _enforce(streams, deadlines)
            alive[0].join(LOOK_EVERY_S)
    finally:
        start.abort()
        for stream in streams:
            if stream.capture.t_done is None:
                stream.abort("aborted: the measurement was stopped")
        for thread in threads:
            if thread.ident is not None:
                thread.join(END_WITHIN_S)


def _mark_start(streams: Sequence[Stream]) -> None:
    now = time.monotonic_ns()
    for stream in streams:
        stream.capture.t_sched = now


def _enforce(streams: Sequence[Stream], deadlines: Deadlines) -> None:
    now = time.monotonic_ns()
    for stream in streams:
        capture = stream.capture
        if capture.t_sched is None or capture.t_done is not None or capture.failure is not None:
            continue
        waited_s = (now - capture.t_sched) / NS_PER_S
        if capture.t_first_byte is None and waited_s > deadlines.first_byte_s:
            stream.abort(f"no_first_byte: nothing came within {deadlines.first_byte_s:g} s")
        elif waited_s > deadlines.whole_s:
            stream.abort(f"deadline: not finished within {deadlines.whole_s:g} s")


@contextmanager
def resting_collector() -> Iterator[None]:
    """Keep the garbage collector from pausing the readers; what it had to do, it does before and afterwards.

    For a whole cell, not for each request: a full collection takes tens of milliseconds.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
