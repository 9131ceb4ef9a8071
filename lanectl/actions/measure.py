"""Measure a serving candidate and keep what was measured in the swap's folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from lanectl.actions.progress import Progress
from lanectl.actions.ready import ReadyReport
from lanectl.actions.station import Station
from lanectl.core.lane import Lane
from lanectl.core.site import reachable
from lanectl.store.files import ensure_dir, write_atomic

KV_FACT = "kv_tokens"  # the boot fact that lanes give their KV cache size under
RAW_NAME = "requests.jsonl"
VOID = "void"  # a cell whose numbers do not count, as the measurement marks it
RESULTS_NAME = "measured.json"


def measure_lane(
    station: Station,
    swap: str,
    lane: Lane,
    profile: str,
    reports: Mapping[str, ReadyReport],
    check: Callable[[], None],
    progress: Progress,
) -> dict[str, Any]:
    """Measure; write the results and raw records under the swap's folder; return the results with their digest.

    Raise `LaneError` when the measurement could not be made at all; a cell that failed is in the results as void.
    """
    folder = station.state.swap(swap) / "measure"
    ensure_dir(folder)
    server = lane.server
    measured = station.measure(
        base_url=f"http://{reachable(lane.host)}:{lane.port}",
        model=lane.served_model,
        profile=profile,
        raw_path=folder / RAW_NAME,
        check=check,
        progress=progress.ticker,
        api_key=station.api_key(server.ready.api_key if server.ready else None),
        kv_log_tokens=_kv_tokens(reports),
    )
    results = measured.to_json()
    content = json.dumps(results, sort_keys=True, indent=1).encode() + b"\n"
    write_atomic(folder / RESULTS_NAME, content)
    return {
        "profile": profile,
        "path": str(folder / RESULTS_NAME),
        "sha256": hashlib.sha256(content).hexdigest(),
        "void": [cell["id"] for cell in results["cells"] if cell["status"] == VOID],
        "results": results,
    }


def _kv_tokens(reports: Mapping[str, ReadyReport]) -> int | None:
    for report in reports.values():
        value = report.facts.get(KV_FACT)
        if isinstance(value, int | float):
            return int(value)
    return None
