"""`lanectl lanes list|show|validate`, `lanectl render`, `lanectl schema`: the specs, seen from every side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lanectl.cli import options, render

if TYPE_CHECKING:
    from lanectl.actions.lanes import Validation
    from lanectl.core.lane import Lane
    from lanectl.core.site import Site
    from lanectl.settings import Settings

EMPTY: tuple[Any, ...] = (None, "", [], {}, False)


def list_(context: typer.Context) -> int:
    """List the lanes: what each is, and whether it is complete."""
    from lanectl import wiring
    from lanectl.actions.lanes import validate

    settings = options.settings(context)
    station = wiring.build_station(settings)
    found = validate(station.site)
    current = station.production().current
    if settings.json:
        _emit(found, {"production": current.label if current else None})
        return 0
    rows = []
    for lane in found.lanes:
        serving = " (production)" if current is not None and current.lane == lane.lane else ""
        rows.append((lane.lane, lane.state + serving, lane.summary))
    render.lines(render.columns(rows, indent=""))
    return 0


def show(context: typer.Context, lane: options.Lane) -> int:
    """Show a lane as lanectl understands it.

    Every value is resolved, secrets are references, durations are seconds.
    """
    from lanectl.core.codec import to_json

    settings = options.settings(context)
    shown = to_json(_load(_site(settings), lane))
    if settings.json:
        render.emit({"lane": shown})
    else:
        import yaml

        text = yaml.safe_dump(_without_empty(shown), sort_keys=False, allow_unicode=True, width=120)
        render.out(text.rstrip())
    return 0


def validate(
    context: typer.Context,
    lanes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LANE]...", help="Else all.", autocompletion=options.complete_lane),
    ] = None,
) -> int:
    """Check lanes: all problems at once, with file and line.

    A lane that only misses facts (what station.yaml does not give yet) is incomplete, which is no error here.
    """
    from lanectl.actions.lanes import validate as check

    settings = options.settings(context)
    found = check(_site(settings), lanes or ())
    if settings.json:
        _emit(found, {})
        return found.exit_code
    for lane in found.lanes:
        render.out(f"{lane.lane}: {lane.state}")
        for problem in lane.problems:
            render.out(f"  {problem}")
        for missing in lane.missing:
            render.out(f"  {missing.where}: {missing.name} is not given ({missing.hint})")
    for problem in found.between:
        render.out(str(problem))
    return found.exit_code


def render_lane(
    context: typer.Context,
    lane: options.Lane,
    compose: Annotated[bool, typer.Option("--compose", help="As a Compose file.")] = False,
) -> int:
    """Print a lane as `docker run` commands, or as a Compose file.

    Either does the same as lanectl. Secrets stay references.
    """
    from lanectl.actions.lanes import as_compose, as_docker_run

    settings = options.settings(context)
    found = _load(_site(settings), lane)
    for missing in found.missing:
        render.err(f"incomplete: {missing.name} is not given ({missing.hint})")
    if compose:
        content = as_compose(found)
        if settings.json:
            render.emit({"compose": content})
        else:
            import yaml

            render.out(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120).rstrip())
        return 0
    runs = as_docker_run(found)
    if settings.json:
        render.emit({"docker_run": runs})
    else:
        import shlex

        for words in runs.values():
            render.out(shlex.join(words))
    return 0


def schema(
    context: typer.Context,
    station: Annotated[bool, typer.Option("--station", help="Of station.yaml instead of a lane.")] = False,
) -> int:
    """Print the JSON Schema of a lane file, for editors."""
    import json

    from lanectl.site.json_schema import lane_schema, station_schema

    render.out(json.dumps(station_schema() if station else lane_schema(), indent=2))
    return 0


def _site(settings: Settings) -> Site:
    from lanectl import wiring

    return wiring.read_site(settings)


def _load(site: Site, label: str) -> Lane:
    from lanectl.site.load import load_lane

    return load_lane(site, label, public=True)


def _emit(found: Validation, more: Mapping[str, Any]) -> None:
    from lanectl.core.codec import to_json

    lanes = [{"state": lane.state, **to_json(lane)} for lane in found.lanes]
    render.emit({"lanes": lanes, "between": to_json(found.between), **more, "exit_code": int(found.exit_code)})


def _without_empty(value: Any) -> Any:
    """What is not set is not worth a line to a person."""
    if isinstance(value, dict):
        return {key: kept for key, item in value.items() if (kept := _without_empty(item)) not in EMPTY}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value
