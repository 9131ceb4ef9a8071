"""`lanectl watch LANE`: the watchdog of the lane that serves, armed if it is not, and followed. For people and systemd.

`lanectl watchdog` is the detached process behind it, for lanectl's own use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanectl.cli import options, render

if TYPE_CHECKING:
    from lanectl.actions.watch_view import WatchView

TICK_EVERY_S = 3600.0  # a watch lasts for weeks, and systemd keeps what it prints: one line an hour


def watch(
    context: typer.Context,
    lane: options.Lane,
    once: Annotated[bool, typer.Option("--once", help="Say how it is and return.")] = False,
) -> int:
    """Watch over the lane that serves, and follow its watchdog.

    The watchdog is armed unless it is already. It is a job of the Station: ending this command does not end it. Exit 8
    when it trips.
    """
    from lanectl import wiring
    from lanectl.actions.watch_lane import follow, look
    from lanectl.cli import live

    settings = options.settings(context)
    station = wiring.build_station(settings)
    if once:
        seen = look(station, lane)
    else:
        with live.progress(TICK_EVERY_S) as progress:
            seen = follow(station, lane, progress)
    if settings.json:
        render.emit({**view_json(seen), "exit_code": int(seen.exit_code)})
    else:
        render.lines(view_lines(seen))
    return seen.exit_code


def watchdog(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY")],
    ready_fd: Annotated[int | None, typer.Option(help="Told when the watcher watches, or why it does not.")] = None,
    box_fd: Annotated[int | None, typer.Option(help="The black box of the watcher that is taken over.")] = None,
    watcher: Annotated[str | None, typer.Option(help="PID:START_TIME of the watcher that is taken over.")] = None,
) -> int:
    """Supervise a lane's watcher. Started by lanectl itself."""
    from lanectl import wiring
    from lanectl.actions.watch_supervisor import Supervisor
    from lanectl.store.process import ProcessId, boot_id

    post = wiring.build_watch_post(options.settings(context), key, box_fd)
    supervisor = Supervisor(post)
    if watcher is not None:
        pid, _, start_time = watcher.partition(":")
        return supervisor.take_over(ProcessId(int(pid), int(start_time), boot_id()))
    if ready_fd is None:
        raise typer.BadParameter("it is needed for a new watcher", param_hint="--ready-fd")
    return supervisor.run(ready_fd)


def view_json(seen: WatchView) -> dict[str, Any]:
    """Return a view as JSON values, with what is computed from them."""
    from lanectl.core.codec import to_json

    found: dict[str, Any] = to_json(seen)
    return found | {"waits": seen.waits, "mean_wait_ms": seen.mean_wait_ms}


def view_lines(seen: WatchView) -> list[str]:
    """Return a view in words."""
    from lanectl.core.codec import to_json

    mode = str(seen.mode) if seen.enforce else f"{seen.mode}, observing only"
    state = f"armed ({mode})" if seen.armed else f"NOT armed: {seen.why}"
    lines = [f"watchdog of {seen.lane}: {state}"]
    if seen.armed:
        age = f"{seen.age_s:.1f} s ago" if seen.age_s is not None else "never"
        mean = "-" if seen.mean_wait_ms is None else f"{seen.mean_wait_ms:.3f} ms"
        lines.append(
            f"  last look {age}, epoch {seen.epoch}, sidecar {seen.sidecar}, {seen.waits} waits of {mean} each"
        )
    if seen.damage:
        lines.append(f"  of its files {seen.damage}: `lanectl recover` writes them again")
    if seen.unwritten:
        lines.append("  its status is not written any more (is the disk full?): this is read from its memory")
    if seen.armed and not seen.supervised:
        lines.append("  its supervisor died and could not be replaced: nobody would notice its own death")
    for record in (seen.tripped, seen.observed):
        if record is not None:
            verb = "tripped" if record.enforced else "would have tripped"
            lines.append(f"  {verb} at {record.at}: {record.rule}: {record.reason}")
            if record.counters is not None:
                lines.append(
                    "  counters then: "
                    + ", ".join(f"{name} {count}" for name, count in to_json(record.counters).items())
                )
    return lines
