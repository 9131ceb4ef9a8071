"""`lanectl gate LANE GATE`: a gate that needs a boot of its own, recorded for its map and image.

A swap of the lane's `check` variant: boot, send real prompts, read the rows, judge, restore production.
"""

from __future__ import annotations

from dataclasses import dataclass

from lanectl.actions.interrupts import Interrupts
from lanectl.actions.progress import Progress
from lanectl.actions.report import SwapReport
from lanectl.actions.station import Station
from lanectl.actions.swap import SwapRequest, swap
from lanectl.core.gates import GateResult, GateVerdict
from lanectl.core.lane import Lane
from lanectl.errors import ExitCode, LaneError
from lanectl.site.load import load_lane
from lanectl.store.gates import GateRecord, record

CHECK_VARIANT = "check"
OWN_BOOT = ("map-cosine",)


@dataclass(frozen=True, slots=True)
class GateReport:
    """How a gate's own boot ended: its verdict (None when the boot did not come that far), its record, the swap."""

    result: GateResult | None
    record: str | None
    swap: SwapReport

    @property
    def exit_code(self) -> ExitCode:
        return self.swap.exit_code


def gate(station: Station, label: str, name: str, progress: Progress, interrupts: Interrupts) -> GateReport:
    """Run a gate on its own boot and record the verdict for the lane's map and the server's image.

    Raise `LaneError` (exit 2) for a gate that has no boot of its own or a lane without a map or `check` variant; else
    as `swap`.
    """
    if name not in OWN_BOOT:
        raise LaneError(
            f"{name} has no boot of its own",
            f"gates with their own boot: {', '.join(OWN_BOOT)}; the others run in `lanectl swap`, named under `gates:`",
            ExitCode.USAGE,
        )
    lane = load_lane(station.site, f"{label}@{CHECK_VARIANT}", public=False)
    if lane.map is None or lane.map.sha256 is None:
        raise LaneError(
            f"lane {label} has no map that maps/MANIFEST.yaml knows", "a verdict is recorded for a map", ExitCode.USAGE
        )
    ended = swap(station, SwapRequest(lane.label, gates=(name,)), progress, interrupts)
    result = _result(name, ended)
    if result is None:
        return GateReport(None, None, ended)
    return GateReport(result, _keep(station, lane, result, ended), ended)


def _result(name: str, ended: SwapReport) -> GateResult | None:
    said = ended.gates.get(name)
    if said is None:
        return None
    return GateResult(name, GateVerdict(said["verdict"]), said["value"], said["bar"], said["detail"])


def _keep(station: Station, lane: Lane, result: GateResult, ended: SwapReport) -> str:
    image = station.engine.image(lane.server.image)
    if image is None or lane.map is None or lane.map.sha256 is None:
        raise LaneError(f"the image of {lane.label} is gone: the verdict cannot be recorded", ended.folder)
    entry = GateRecord(result, lane.map.sha256, image.id, lane.name, ended.swap, station.clock.wall())
    return str(record(station.state.gates, entry))
