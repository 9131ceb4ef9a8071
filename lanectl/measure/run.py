"""Run a profile against a server: preflight, warm-up, the cells in order, and what was found. Order of work only."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, TextIO

import lanectl
from lanectl.errors import ExitCode, LaneError, Unreachable
from lanectl.measure import metrics
from lanectl.measure.answer import TokenSource
from lanectl.measure.client import OPTIONAL_FIELDS, Endpoint, RequestShape, Stream
from lanectl.measure.driver import resting_collector, run_together
from lanectl.measure.metrics import Scrape, WaitingWatch
from lanectl.measure.profiles import Cell, Profile, Prompt
from lanectl.measure.record import Asked, RequestRecord, read_capture
from lanectl.measure.results import KV_CELL, OK, MeasuredProfile, Row
from lanectl.measure.rows import CellRun, cell_result, cell_rows

# Failures after which asking again only waits for the next deadline: the remaining cells are void without being run.
SERVER_IS_GONE = frozenset({"connect", "not_sent", "no_first_byte", "deadline"})
SALT_BYTES = 16  # 128 random bits: no two requests ever share one
PREFLIGHT = "preflight"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def _records(path: Path) -> Iterator[TextIO]:
    """Open the file of raw records. Raise `LaneError` when it cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = open(path, "w", encoding="utf-8", opener=_private)  # noqa: SIM115 - pathlib knows no opener
    except OSError as error:
        raise _unwritable(str(path), error) from error
    try:
        yield raw
    finally:
        with suppress(OSError):  # what could not be written was said by the write
            raw.close()


def _unwritable(path: str, error: OSError) -> LaneError:
    return LaneError(f"{path} cannot be written: {error.strerror}", "a measurement keeps every request's record there")


def run_profile(
    *,
    base_url: str,
    model: str,
    profile: Profile,
    raw_path: Path,
    check: Callable[[], None],
    progress: Callable[[str], None],
    api_key: str | None = None,
    kv_log_tokens: int | None = None,
) -> MeasuredProfile:
    """Given a server and a profile, return what was measured; every request's record goes to `raw_path` (JSON lines).

    `check` is called many times a second from this thread; what it raises ends the measurement: all sockets are closed
    and all threads ended before it is passed on. `progress` gets one short line at a time. `kv_log_tokens` is the KV
    cache size that the boot log gave, used when the server publishes none.

    A failed request voids its cell and is no error here: the result says so. Raise Unreachable when the server does not
    answer at all, LaneError (exit 4) when it does not serve `model` or cannot answer one token, exit 2 for a bad URL.
    """
    endpoint = Endpoint.parse(base_url, api_key)
    started, began_ns = datetime.now(UTC), time.monotonic_ns()
    with _records(raw_path) as raw:
        run = _Run(
            endpoint, profile, RequestShape(model, profile.max_tokens, profile.template_kwargs), raw, check, progress
        )
        run.write(
            {"kind": "run", "profile": profile.name, "model": model, "wall": started.isoformat(), "at_ns": began_ns}
        )
        max_model_len = _served_length(endpoint, model)
        run.shape = _accepted_shape(run)
        cells = _cells(run)
    reading = metrics.scrape(endpoint)
    kv_tokens, kv_source = metrics.kv_cache_tokens(reading, kv_log_tokens)
    kv_reason = None if kv_tokens is not None else "neither the metrics nor the boot log give it"
    kv_formula = f"kv_cache_tokens/{kv_source or 'unknown'}"
    kv_row = Row(KV_CELL, "kv_cache_tokens", kv_tokens, "tokens", 1, OK, kv_reason, kv_formula)
    return MeasuredProfile(
        profile=profile.name,
        summary=profile.summary,
        model=model,
        rows=(*(row for cell in cells for row in cell_rows(cell)), kv_row),
        cells=tuple(cell_result(cell) for cell in cells),
        conditions={
            "lanectl": lanectl.__version__,
            "started_at": started.isoformat(),
            "seconds": (time.monotonic_ns() - began_ns) / 1e9,
            **_asked(profile, run.shape),
            **_answered([record for cell in cells for record in cell.records]),
            "max_waiting": max((cell.max_waiting for cell in cells if cell.max_waiting is not None), default=None),
            "client_lag_ms": None,  # needs a server that stamps its writes
            "kv_cache": {
                "tokens": kv_tokens,
                "source": kv_source,
                "max_model_len": max_model_len,
                **_kv_beside(reading),
            },
        },
    )


@dataclass(slots=True)
class _Run:
    """What every part of a run needs."""

    endpoint: Endpoint
    profile: Profile
    shape: RequestShape
    raw: TextIO
    check: Callable[[], None]
    progress: Callable[[str], None]

    def write(self, record: dict[str, Any]) -> None:
        try:
            self.raw.write(json.dumps(record) + "\n")
            self.raw.flush()
        except OSError as error:
            raise _unwritable(self.raw.name, error) from error

    def together(self, cell: str, first: int, prompts: Sequence[Prompt]) -> list[RequestRecord]:
        """Send these prompts at the same moment, wait for all, return and write their records."""
        asked = [
            Asked(cell, f"lanectl-{cell}-{first + index}-{secrets.token_hex(4)}", prompt.id, prompt.text)
            for index, prompt in enumerate(prompts)
        ]
        streams = [
            Stream(self.endpoint, self.shape.body(one.prompt, secrets.token_hex(SALT_BYTES)), one.request_id)
            for one in asked
        ]
        run_together(streams, self.profile.deadlines, self.check)
        records = [read_capture(one, stream.capture) for one, stream in zip(asked, streams, strict=True)]
        for record in records:
            self.write({"kind": "request", **record.to_json()})
        return records


def _served_length(endpoint: Endpoint, model: str) -> int | None:
    """Return the model's context length as the server gives it. Raise when the server is silent or lists it not."""
    answer = metrics.fetch(endpoint, "/v1/models")
    if answer is None:
        raise Unreachable(f"no answer from {endpoint.host}:{endpoint.port} to GET /v1/models")
    status, body = answer
    try:
        listed = {entry["id"]: entry for entry in json.loads(body)["data"]} if status == HTTPStatus.OK else {}
    except (ValueError, TypeError, KeyError):
        listed = {}
    if model not in listed:
        raise LaneError(
            f"{endpoint.host}:{endpoint.port} does not serve {model!r}"
            + (f" but {', '.join(map(str, listed))}" if listed else f" (/v1/models: HTTP {status})"),
            exit_code=ExitCode.CANDIDATE,
        )
    length = listed[model].get("max_model_len")
    return length if isinstance(length, int) else None


def _accepted_shape(run: _Run) -> RequestShape:
    """Ask for one real token, leaving out what the server refuses; return the shape for all further requests."""
    shape = run.shape
    prompt = run.profile.warmup.prompts()[0]
    for attempt in range(len(OPTIONAL_FIELDS) + 1):
        run.shape = replace(shape, max_tokens=1)
        record = run.together(PREFLIGHT, attempt, [prompt])[0]
        refused = shape.refused_by(record.error or "") if record.status == HTTPStatus.BAD_REQUEST else frozenset()
        if not refused:
            break
        shape = replace(shape, dropped=shape.dropped | refused)
    if record.error is not None:
        raise LaneError(f"the server cannot answer one token: {record.error}", exit_code=ExitCode.CANDIDATE)
    return shape


def _cells(run: _Run) -> list[CellRun]:
    """Run warm-up and cells in order. Once warm-up failed or the server has gone, the rest is void with that reason."""
    done: list[CellRun] = []
    stopped = _warm_up(run)
    reading: Scrape | None = None
    for cell in run.profile.cells:
        if stopped is not None:
            done.append(CellRun(cell, (), stopped=stopped))
            continue
        if reading is None:
            reading, _ = metrics.settle(run.endpoint, run.profile.settle_s, run.check)
        finished = _cell(run, cell, reading)
        reading = finished.after  # also the next cell's start: traffic between two cells counts as somebody else's
        done.append(finished)
        stopped = next((f"not run: {cell.id}: {r.error}" for r in finished.records if _server_is_gone(r)), None)
    return done


def _warm_up(run: _Run) -> str | None:
    """Make the warm-up passes; return why nothing can be measured, None when they went well."""
    for number in range(1, run.profile.warmup_passes + 1):
        records = _requests(run, run.profile.warmup, f"warm-up {number} of {run.profile.warmup_passes}")
        failed = next((record for record in records if not record.ok), None)
        if failed is not None:
            return f"warm-up failed: {failed.error}"
    return None


def _cell(run: _Run, cell: Cell, before: Scrape | None) -> CellRun:
    watch = WaitingWatch(run.endpoint) if cell.streams > 1 and before is not None else None
    if watch is None:
        records = _requests(run, cell, cell.id)
    else:
        with watch:
            records = _requests(run, cell, cell.id)
    after, at_rest = metrics.settle(run.endpoint, run.profile.settle_s, run.check)
    return CellRun(cell, tuple(records), before, after, at_rest, watch.highest() if watch is not None else None)


def _requests(run: _Run, cell: Cell, called: str) -> list[RequestRecord]:
    """Send a cell's requests, `streams` at a time, up to the first that fails; return the records so far."""
    records: list[RequestRecord] = []
    with resting_collector():
        for first, prompts in _groups(cell):
            run.progress(
                f"{called}: request {first + 1} of {cell.requests}" if cell.streams == 1 else f"{called}: running"
            )
            records += run.together(cell.id, first, prompts)
            if not all(record.ok for record in records):
                break
    return records


def _groups(cell: Cell) -> Iterator[tuple[int, Sequence[Prompt]]]:
    prompts = cell.prompts()
    for first in range(0, len(prompts), cell.streams):
        yield first, prompts[first : first + cell.streams]


def _server_is_gone(record: RequestRecord) -> bool:
    return record.error is not None and record.error.partition(":")[0] in SERVER_IS_GONE


def _asked(profile: Profile, shape: RequestShape) -> dict[str, Any]:
    """What was asked of the server, for the conditions."""
    sets = {prompts for cell in (profile.warmup, *profile.cells) for prompts in cell.sets}
    return {
        "max_tokens": profile.max_tokens,
        "temperature": 0,
        "ignore_eos": False,
        "template_kwargs": dict(profile.template_kwargs),
        "warmup_passes": profile.warmup_passes,
        "prompts_sha256": {prompts.file: prompts.sha256 for prompts in sorted(sets, key=lambda one: one.file)},
        "fields_refused": sorted(shape.dropped),
        "cache_guard": "none" if "cache_salt" in shape.dropped else "salt",
    }


def _answered(records: Sequence[RequestRecord]) -> dict[str, Any]:
    """What the server's answers tell, for the conditions. The token source is the weakest that any request had."""
    worst_first = list(reversed(TokenSource))
    sources = {record.token_source for record in records if record.ok}
    return {
        "token_source": next((source.value for source in worst_first if source in sources), None),
        "fingerprints": sorted({record.fingerprint for record in records if record.fingerprint is not None}),
    }


def _kv_beside(reading: Scrape | None) -> dict[str, Any]:
    """What a KV cache size depends on, of the first engine: sizes are not to be compared where these differ."""
    configs = reading.cache_config() if reading is not None else ()
    first = configs[0] if configs else {}
    return {name: first.get(name) for name in ("cache_dtype", "gpu_memory_utilization")}
