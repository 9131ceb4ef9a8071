"""The demo site: twins of five real lanes on the reference engine, for any machine without a GPU.

The twins differ as their originals do where that can be shown without the hardware: where the cold experts are, how
many they are, how many conversations are admitted at once, and how much room for them there is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from lanectl.site.demo_maps import demo_map

PRODUCTION = "v25"
CANDIDATE = "gracetier"
SERVED_MODEL = "dsv41-flash-uva"  # what the originals call their model
MAX_MODEL_LEN = 4096
MIB = 1024 * 1024

# Hot experts of the model's 48 a layer, in the proportion of the originals' 295 and 255 of 384.
_OCTOBER_HOT, _NOVEMBER_HOT = 37, 32


@dataclass(frozen=True, slots=True)
class _Twin:
    lane: str
    placement: str  # of the cold experts, in the reference engine's words
    hot: int  # experts of a layer in fast memory
    where: str  # the cold ones are, for people
    seats: int  # conversations admitted at once
    kv_mib: int
    least_tokens: int  # of the boot fact: below it, the cache was not given its room
    variants: str = ""


_CHECK = """
variants:                        # lanectl gate {lane} map-cosine: every layer's cold experts against a reference path
  check: {{services: {{server: {{environment: {{MEGA_PEER_CHECK: "100000", MEGA_COLD_TRT: "1"}}}}}}}}
"""
_FAILURES = """
variants:                        # lanectl swap gracetier@dies shows how production comes back
  dies:  {services: {server: {environment: {REFERENCE_FAULTS: "exit=1:4 traceback"}}}}
  hangs: {services: {server: {environment: {REFERENCE_FAULTS: "hang=0"}, ready: {completion: {within: 5s}}}}}
"""

# The reference engine keeps 1,280 bytes a token, so 64 MiB hold about 52,000. Each bound is a little below its room.
_TWINS = (
    _Twin("v25", "sidecar", _OCTOBER_HOT, "computed by a sidecar", 32, 64, 50_000, _CHECK.format(lane="v25")),
    _Twin("pg61", "sidecar", _NOVEMBER_HOT, "computed by a sidecar", 64, 128, 100_000, _CHECK.format(lane="pg61")),
    _Twin(CANDIDATE, CANDIDATE, _NOVEMBER_HOT, "copied from host memory when picked", 32, 256, 200_000, _FAILURES),
    _Twin("october", "october", _OCTOBER_HOT, "read from host memory, often-picked ones swapped in", 24, 64, 50_000),
    _Twin("v23", "v23", _OCTOBER_HOT, "read from host memory", 24, 64, 50_000),
)

_LANE = """\
lane: {lane}
summary: "twin of {lane}: {hot} experts a layer hot, the rest {where}; {seats} conversations at once"
served_model: {model}
max_model_len: {length}
map: {{file: maps/{map}, mount: "${{paths.maps}}/{map}", services: [{readers}]}}
{shm}
services:{sidecar}
  server:
    container_name: demo-{lane}{depends}
    image: ${{images.reference}}
    network_mode: host
    ipc: host
    restart: "no"
    volumes: ["*${{args.binds}}"]
    environment: {{PYTHONUNBUFFERED: "1"{environment}}}
    entrypoint: ["${{paths.python}}", -m, lanectl.reference.server]
    command: [--host, "${{host}}", --port, "${{port}}", --served-model-name, {model}, --seed, "41", --shape, small,
              --rowmap, "${{paths.maps}}/{map}", --placement, {placement},
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
      hot_experts: {{log: '(\\d+) resident a layer', at_least: {hot}, at_most: {hot}}}
{watchdog}
drain:   {{idle_for: 200ms, deadline: 5s}}
gates:   [map-handshake, byte-audit]
measure: {{profile: quick}}
"""

_SIDECAR = """
  sidecar:
    container_name: demo-{lane}-sidecar
    image: ${{images.reference}}
    network_mode: host
    ipc: host
    restart: "no"
    volumes: ["*${{args.binds}}"]
    environment: {{PYTHONUNBUFFERED: "1", VLLM_EXP_PEER2_SHM: {counters}}}
    entrypoint: ["${{paths.python}}", -m, lanectl.reference.sidecar]
    command: [--rowmap, "${{paths.maps}}/{map}", --seed, "41", --shape, small]
    stop_grace_period: 5s
    ready: {{log: '^serving', timeout: 60s, fatal: ['SELFTEST FAILED', '^ValueError:']}}"""

_PEER = ', VLLM_EXP_PEER2_SHM: {counters}, VLLM_EXP_PEER_SPINS: "2000000000"'
_WATCHDOG = """
watchdog:                        # a stalled sidecar ends the lane before the server would go on without it
  counters: {counters}
  stall: 2s
  mode: enforce
  on_trip: dark
  spins: {{service: server, variable: VLLM_EXP_PEER_SPINS, at_least: 2000000000}}
fallback: v23
"""

_STATION = """\
# A demo site: everything in it runs on this machine's processor. `lanectl demo` made it; change it as you like.
station: demo
engine: {engine}
host: 127.0.0.1
ports: {{public: {public}, trial: {trial}}}
paths: {{python: {python}, maps: {maps}}}
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
    """Make a complete site in `root` (made when it is not there): production `v25`, candidates that differ from it.

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
        maps=json.dumps(str(root.absolute() / "maps")),
        image=json.dumps(image),
        binds=json.dumps(list(binds)),
        production=PRODUCTION,
    )
    (root / "station.yaml").write_text(station, encoding="utf-8")
    digests = {}
    for hot in sorted({twin.hot for twin in _TWINS}):
        text = demo_map(hot)
        (root / "maps" / _map_name(hot)).write_text(text, encoding="utf-8")
        digests[_map_name(hot)] = {"sha256": sha256(text.encode()).hexdigest()}
    (root / "maps" / "MANIFEST.yaml").write_text(json.dumps({"maps": digests}, indent=2) + "\n", encoding="utf-8")
    own = sha256(str(root.absolute()).encode()).hexdigest()[:8]  # demo sites on one machine share its memory
    for twin in _TWINS:
        text = _lane_text(twin, f"/dev/shm/lanectl-demo-{own}-{twin.lane}")
        (root / "lanes" / f"{twin.lane}.yaml").write_text(text, encoding="utf-8")


def _map_name(hot: int) -> str:
    return f"rowmap-h{hot}.json"


def _lane_text(twin: _Twin, counters: str) -> str:
    has_sidecar = twin.placement == "sidecar"
    values = {"lane": twin.lane, "map": _map_name(twin.hot), "counters": counters}
    text = _LANE.format(
        **values,
        where=twin.where,
        model=SERVED_MODEL,
        length=MAX_MODEL_LEN,
        readers="sidecar, server" if has_sidecar else "server",
        shm=f"shm: [{counters}]\n" if has_sidecar else "",
        depends="\n    depends_on: [sidecar]" if has_sidecar else "",
        sidecar=_SIDECAR.format(**values) if has_sidecar else "",
        environment=_PEER.format(**values) if has_sidecar else "",
        watchdog=_WATCHDOG.format(**values) if has_sidecar else "",
        placement=twin.placement,
        hot=twin.hot,
        seats=twin.seats,
        kv_bytes=twin.kv_mib * MIB,
        least=twin.least_tokens,
    )
    return text + twin.variants


def _flow(options: dict[str, str | None]) -> str:
    return "{" + ", ".join(f"{key}: {json.dumps(value)}" for key, value in options.items()) + "}"
