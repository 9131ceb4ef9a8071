"""The demo site: twins of three real lanes on the reference engine, for any machine without a GPU.

The twins differ as their originals do where that can be shown without the hardware: how many conversations are
admitted at once, and how much room for them there is. Where the experts are is the same for all: resident.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PRODUCTION = "pg61"
CANDIDATE = "gracetier"
SERVED_MODEL = "dsv41-flash-uva"  # what the originals call their model
MAX_MODEL_LEN = 4096
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Twin:
    lane: str
    summary: str
    seats: int  # conversations admitted at once
    kv_mib: int
    least_tokens: int  # of the boot fact: below it, the cache was not given its room
    variants: str = ""


# The reference engine keeps 1,280 bytes a token, so 64 MiB hold about 52,000. Each bound is a little below its room.
_TWINS = (
    _Twin(PRODUCTION, "twin of pg61: 64 conversations at once", 64, 128, 100_000),
    _Twin(
        CANDIDATE,
        "twin of gracetier: 32 conversations at once, the largest cache",
        32,
        256,
        200_000,
        """
variants:                        # lanectl swap gracetier@dies shows how production comes back
  dies:  {services: {server: {environment: {REFERENCE_FAULTS: "exit=1:4 traceback"}}}}
  hangs: {services: {server: {environment: {REFERENCE_FAULTS: "hang=0"}, ready: {completion: {within: 5s}}}}}
""",
    ),
    _Twin("v23", "twin of v23: 24 conversations at once", 24, 64, 50_000),
)

_LANE = """\
lane: {lane}
summary: "{summary}"
served_model: {model}
max_model_len: {length}

services:
  server:
    container_name: demo-{lane}
    image: ${{images.reference}}
    network_mode: host
    ipc: host
    restart: "no"
    volumes: ["*${{args.binds}}"]
    environment: {{PYTHONUNBUFFERED: "1"}}
    entrypoint: ["${{paths.python}}", -m, lanectl.reference.server]
    command: [--host, "${{host}}", --port, "${{port}}", --served-model-name, {model}, --seed, "41", --shape, small,
              --max-model-len, "{length}", --max-num-seqs, "{seats}", --kv-cache-memory-bytes, "{kv_bytes}"]
    stop_grace_period: 10s
    ready:
      health: /health
      models: true
      completion: {{max_tokens: 1, within: 30s}}
      timeout: 60s
      fatal: ['^Traceback', '^RuntimeError:', '^ValueError:']
    facts:
      kv_tokens: {{log: 'KV cache size: ([\\d,]+) tokens', at_least: {least}}}

drain:   {{idle_for: 200ms, deadline: 5s}}
measure: {{profile: quick}}
"""

_STATION = """\
# A demo site: everything in it runs on this machine's processor. `lanectl demo` made it; change it as you like.
station: demo
engine: {engine}
host: 127.0.0.1
ports: {{public: {public}, trial: {trial}}}
paths: {{python: {python}}}
images: {{reference: {image}}}
args: {{binds: {binds}}}
production: {production}
reboot_recovery: accepted        # a demo need not survive a reboot
"""


def write_demo_site(
    root: Path,
    *,
    engine: str,
    python: str,
    image: str,
    ports: tuple[int, int],
    endpoint: str = "",
    daemon_id: str | None = None,
    binds: Sequence[str] = (),
) -> None:
    """Make a complete site in `root` (made when it is not there): production `pg61`, candidates `gracetier` and `v23`.

    `engine` is local or docker. `python`: an interpreter that has lanectl and numpy, as the service sees it. `image`:
    `env:/DIR@sha256:…` for local, an image by digest or id for docker; `binds` are volumes such as `/usr:/usr:ro`.
    `ports` are (public, trial). Raise OSError when it cannot be written.
    """
    for folder in ("lanes", "maps", "state"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    options = {"kind": engine, "endpoint": endpoint, "daemon_id": daemon_id}
    station = _STATION.format(
        engine=_flow({key: value for key, value in options.items() if value}),
        public=ports[0],
        trial=ports[1],
        python=json.dumps(python),
        image=json.dumps(image),
        binds=json.dumps(list(binds)),
        production=PRODUCTION,
    )
    (root / "station.yaml").write_text(station, encoding="utf-8")
    for twin in _TWINS:
        (root / "lanes" / f"{twin.lane}.yaml").write_text(_lane_text(twin), encoding="utf-8")


def _lane_text(twin: _Twin) -> str:
    text = _LANE.format(
        lane=twin.lane,
        summary=twin.summary,
        model=SERVED_MODEL,
        length=MAX_MODEL_LEN,
        seats=twin.seats,
        kv_bytes=twin.kv_mib * MIB,
        least=twin.least_tokens,
    )
    return text + twin.variants


def _flow(options: dict[str, str | None]) -> str:
    return "{" + ", ".join(f"{key}: {json.dumps(value)}" for key, value in options.items()) + "}"
