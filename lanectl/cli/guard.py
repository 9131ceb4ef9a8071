"""`lanectl guard`: the detached process that restores production when a swap's own process dies. For lanectl's use."""

from __future__ import annotations

from typing import Annotated

import typer

from lanectl.cli import options


def guard(
    context: typer.Context,
    swap: Annotated[str, typer.Argument(metavar="SWAP")],
    alive_fd: Annotated[int, typer.Option(help="Reads the end of the swap's process.")],
    ready_fd: Annotated[int, typer.Option(help="Told when the guard is ready.")],
) -> None:
    """Watch over a swap and restore production when its process dies. Started by `lanectl swap` itself."""
    from lanectl import wiring
    from lanectl.actions.guarding import guard as watch_over

    watch_over(wiring.build_station(options.settings(context)), swap, alive_fd, ready_fd)
