"""`lanectl lanes`: which lanes a site has, and what is wrong with or missing from each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lanectl.core.lane import Lane, Missing
from lanectl.core.site import Site
from lanectl.engine.create import compose, create_args, docker_run
from lanectl.errors import ExitCode, Problem, SpecError
from lanectl.site.load import check_all, lane_names, load_lane


@dataclass(frozen=True, slots=True)
class LaneReport:
    """One lane file, its variants included. `missing`: what station.yaml does not give yet; such a lane is
    incomplete: good to look at, refused by swap."""

    lane: str
    summary: str
    problems: tuple[Problem, ...]
    missing: tuple[Missing, ...]

    @property
    def state(self) -> str:
        if self.problems:
            return "wrong"
        return "incomplete" if self.missing else "complete"


@dataclass(frozen=True, slots=True)
class Validation:
    """All lanes asked for; `between`: problems that belong to no single file."""

    lanes: tuple[LaneReport, ...]
    between: tuple[Problem, ...]

    @property
    def exit_code(self) -> ExitCode:
        """USAGE when anything is wrong; a lane that is only incomplete is fine."""
        wrong = self.between or any(lane.problems for lane in self.lanes)
        return ExitCode.USAGE if wrong else ExitCode.OK


def validate(site: Site, labels: Sequence[str] = ()) -> Validation:
    """Given lanes (none: all), check each with all its variants, and all of the site against each other.

    Raise `LaneError` for a label that there is no lane for.
    """
    for label in labels:
        _summary(site, label)
    found = check_all(site)
    wanted = [label.partition("@")[0] for label in labels] or lane_names(Path(site.root))
    reports = tuple(_report(site, name, found) for name in dict.fromkeys(wanted))
    in_files = {problem for report in reports for problem in report.problems}
    between = () if labels else tuple(problem for problem in found if problem not in in_files)
    return Validation(reports, between)


def _report(site: Site, name: str, found: list[Problem]) -> LaneReport:
    problems = tuple(problem for problem in found if problem.where.partition(":")[0] == f"lanes/{name}.yaml")
    summary, missing = _summary(site, name)
    return LaneReport(name, summary, problems, missing)


def _summary(site: Site, label: str) -> tuple[str, tuple[Missing, ...]]:
    """Return a lane's summary and what it lacks; nothing of either for one that is wrong (`check_all` says how)."""
    try:
        lane = load_lane(site, label, public=True)
    except SpecError:
        return "", ()
    return lane.summary, lane.missing


def as_docker_run(lane: Lane) -> dict[str, list[str]]:
    """Given a lane, return by service the words of the `docker run` that does the same; secrets stay references."""
    return {
        service.name: docker_run(
            create_args(lane, service, name=service.container_name, labels={}, restart=service.restart)
        )
        for service in lane.services
    }


def as_compose(lane: Lane) -> dict[str, Any]:
    """Given a lane, return the content of a Compose file that does the same; secrets stay references."""
    return compose(lane)
