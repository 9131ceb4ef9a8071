"""Make site directories for tests: real files, as an operator has them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from lanectl.core.site import Site
from lanectl.errors import Problem, SpecError
from lanectl.site.load import load_lane, load_site

REPOSITORY = Path(__file__).resolve().parents[2]
GB300 = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
RTX = "GPU-bbbbbbbb-0000-0000-0000-000000000002"
DIGEST = "sha256:" + "ab" * 32

STATION = f"""\
station: test
engine: {{kind: docker, endpoint: "unix:///run/test.sock"}}
ports: {{public: 30006, trial: 30016}}
gpus: {{gb300: {{uuid: {GB300}, idle: 22MiB}}, rtx: {RTX}}}
paths: {{model: /srv/model, local: sidecar}}
images: {{engine: "registry.example:5000/vllm@{DIGEST}"}}
args: {{extra: [--flag, "a b"], none: []}}
secrets: {{hf: {{env: TEST_HF}}, api: {{env: TEST_API}}}}
"""

LANE = """\
lane: small
served_model: m
services:
  server:
    container_name: small
    image: ${images.engine}
    ready: {models: true}
"""


def make_site(root: Path, station: str = STATION, **lanes: str) -> Path:
    """Given a folder, make a site in it with these lanes' texts (by name; _ for -), and return it."""
    (root / "lanes").mkdir(parents=True, exist_ok=True)
    (root / "station.yaml").write_text(station)
    for name, text in lanes.items():
        (root / "lanes" / f"{name.replace('_', '-')}.yaml").write_text(dedent(text))
    return root


def site_with(root: Path, station: str = STATION, **lanes: str) -> Site:
    """Make the site and load it."""
    return load_site(make_site(root, station, **lanes))


def lane_problems(root: Path, text: str, label: str = "small", station: str = STATION) -> list[Problem]:
    """Return what is wrong with one lane's text, found by loading it as an operator would."""
    name = label.partition("@")[0]
    site = load_site(make_site(root, station, **{name: text}))
    try:
        load_lane(site, label, public=True)
    except SpecError as error:
        return list(error.problems)
    return []


def station_problems(root: Path, station: str, **lanes: str) -> list[Problem]:
    """Return what is wrong with a station.yaml."""
    try:
        load_site(make_site(root, station, **lanes))
    except SpecError as error:
        return list(error.problems)
    return []


def uncommented_example() -> str:
    """Return station.example.yaml with its waiting keys (`#key:`, no space) filled in as they stand there."""
    lines = (REPOSITORY / "station.example.yaml").read_text().splitlines()
    return "\n".join(_uncomment(line) for line in lines) + "\n"


def _uncomment(line: str) -> str:
    body = line.lstrip(" ")
    return line.replace("#", "", 1) if body.startswith("#") and body[1:2].strip() else line
