"""Times in words, as an operator writes and reads them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def duration(seconds: float) -> str:
    """Given seconds, return them as a spec has them: 500ms, 2s, 2m, 1h30m. Exact to the millisecond."""
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    left, words = round(seconds, 3), ""
    for size, unit in _UNITS[:-1]:
        count, left = divmod(left, size)
        words += f"{count:.0f}{unit}" if count else ""
    return words + (f"{round(left, 3):g}s" if left or not words else "")


def ago(at: str, now: datetime | None = None) -> str:
    """Given an RFC 3339 time, return it with how long ago that was; as it is when it cannot be read."""
    try:
        then = datetime.fromisoformat(at)
        seconds = ((now or datetime.now(UTC)) - then).total_seconds()
    except (ValueError, TypeError):
        return at
    if seconds < 0:
        return at
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{at} ({seconds // size:.0f} {unit} ago)"
