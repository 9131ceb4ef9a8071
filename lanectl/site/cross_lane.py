"""What must hold between the lanes of a site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lanectl.errors import Problem

if TYPE_CHECKING:
    from lanectl.core.lane import Lane


def shared_names(lanes: Sequence[Lane]) -> list[Problem]:
    """Given all lanes, report container names that mean one service in one lane and another service in another.

    Two lanes may share a name for the same service (production is put aside before a candidate of that name starts).
    """
    first: dict[str, tuple[Lane, str]] = {}
    problems: list[Problem] = []
    for lane in lanes:
        for service in lane.services:
            other, role = first.setdefault(service.container_name, (lane, service.name))
            if role != service.name and service.container_name:
                message = f"{service.container_name} is the container of {role} in lane {other.name}"
                path = f"services.{service.name}.container_name"
                problems.append(Problem(f"lanes/{lane.name}.yaml", message, path, "give each its own name"))
    return problems
