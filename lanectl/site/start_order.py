"""In which order services start: each after everything it depends on, else as written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def start_order(depends: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Given services in file order with what each depends on, return (start order, cycle).

    Unknown names are ignored. The cycle is empty when there is none; the services of a cycle, and those that wait for
    it, come last as written.
    """
    order: list[str] = []
    waiting = list(depends)
    while waiting:
        ready = [name for name in waiting if all(need in order for need in depends[name] if need in depends)]
        if not ready:
            return (*order, *waiting), _cycle(waiting, depends)
        order.append(ready[0])
        waiting.remove(ready[0])
    return tuple(order), ()


def _cycle(waiting: list[str], depends: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Follow unmet needs until a name comes again: every waiting service has one, so the walk must close."""
    path: list[str] = []
    name = waiting[0]
    while name not in path:
        path.append(name)
        name = next(need for need in depends[name] if need in waiting)
    return tuple(path[path.index(name) :])
