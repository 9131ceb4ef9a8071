"""The entries: a site directory -> Site, a lane's label -> Lane."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lanectl.core.codec import to_json
from lanectl.core.site import LOOPBACK, Site
from lanectl.errors import LaneError, Problem, SpecError
from lanectl.site.cross_lane import shared_names
from lanectl.site.lane_shape import LANE_NAME, LANE_NAME_FORM, OVERLAY_KEYS
from lanectl.site.reader import read_file
from lanectl.site.station import build_site
from lanectl.site.tree import MapNode, Node, nearest, overlay

if TYPE_CHECKING:
    from lanectl.core.lane import Lane

STATION_FILE = "station.yaml"
LANES_DIR = "lanes"
SUFFIX = ".yaml"
# What the digest is made with in place of the listen address, so that trial and public agree.
_DIGEST_HOST = "host.invalid"  # .invalid is reserved: RFC 2606
_DIGEST_PORT = 1


def lane_names(root: Path) -> tuple[str, ...]:
    """Given a site's root, return its lane names, sorted. Never raise: what cannot be read has no lanes."""
    try:
        found = os.listdir(root / LANES_DIR)  # noqa: PTH208 (names are all that is wanted: completion must be quick)
    except (OSError, ValueError):
        return ()
    names = (name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))
    return tuple(sorted(name for name in names if re.fullmatch(LANE_NAME, name)))


def load_site(root: Path) -> Site:
    """Given a directory, return the site. Raise `SpecError` with every problem, `LaneError` when it is no site."""
    if not os.path.isdir(root):  # noqa: PTH112 (never raises, whatever the name)
        raise LaneError(f"{root}: no such directory", "give a site with --site DIR or LANECTL_SITE")
    path = root / STATION_FILE
    try:
        path.lstat()
    except FileNotFoundError:
        raise LaneError(
            f"{root}: not a site, it has no {STATION_FILE}",
            f"copy station.example.yaml to {path} and fill it in, or see it all work with `lanectl demo`",
        ) from None
    except OSError:
        pass  # it cannot be told: reading it says why
    tree, problems = read_file(path, STATION_FILE)
    problems = [*problems, *_misnamed(root)]
    if tree is None:
        raise SpecError(problems)
    site, found = build_site(root, tree, lane_names(root))
    if problems or found:
        raise SpecError([*problems, *found])
    return site


def load_lane(site: Site, label: str, *, public: bool) -> Lane:
    """Given `lane` or `lane@variant`, return the lane for the public or the trial address.

    What station.yaml does not give yet is listed in `missing`. Raise `SpecError` with every problem of the lane,
    `LaneError` when there is no such lane or variant.
    """
    name, at, variant = label.partition("@")
    names = lane_names(Path(site.root))
    if name not in names:
        raise LaneError(f"there is no lane {name}", nearest(name, names) or "the site's lanes/ is empty")
    tree, problems = _read_lane(site, name)
    if tree is None:
        raise SpecError(problems)
    known = _variants(tree)
    if at and variant not in known:
        raise LaneError(f"lane {name} has no variant {variant}", nearest(variant, known) or "it has none")
    lane, found = _resolve(site, tree, name, variant or None, public)
    if problems or found:
        raise SpecError([*problems, *found])
    return lane


def check_all(site: Site) -> list[Problem]:
    """Given a site, return what is wrong with its lanes: each lane, each variant, and between lanes."""
    problems: list[Problem] = []
    lanes: list[Lane] = []
    for name in lane_names(Path(site.root)):
        tree, found = _read_lane(site, name)
        problems += found
        if tree is None:
            continue
        for variant in (None, *_variants(tree)):
            lane, found = _resolve(site, tree, name, variant, public=True)
            problems += found
            lanes.append(lane)
    return list(dict.fromkeys([*problems, *shared_names(lanes)]))  # a variant repeats its lane's problems


def _read_lane(site: Site, name: str) -> tuple[Node | None, list[Problem]]:
    file = f"{LANES_DIR}/{name}{SUFFIX}"
    return read_file(Path(site.root) / file, file)


def _variants(tree: Node) -> tuple[str, ...]:
    variants = tree.get("variants") if isinstance(tree, MapNode) else None
    return tuple(key.text for key, _ in variants.items) if isinstance(variants, MapNode) else ()


def _resolve(site: Site, tree: Node, name: str, variant: str | None, public: bool) -> tuple[Lane, list[Problem]]:
    from lanectl.site.lane_values import build_lane  # what reads the site only need not know how a lane is read

    host, port = (site.host, site.public_port) if public else (LOOPBACK, site.trial_port)
    problems: list[Problem] = []
    if variant is not None and isinstance(tree, MapNode):
        tree, problems = _lay_variant(tree, variant)
    lane, reader = build_lane(site, tree, name, variant, host, port)
    problems += reader.problems
    problems += _wrong_name(tree, name)
    if problems:
        return lane, problems
    neutral, _ = build_lane(site, tree, name, variant, _DIGEST_HOST, _DIGEST_PORT)
    return replace(lane, sha256=_digest(neutral)), []


def _lay_variant(tree: MapNode, variant: str) -> tuple[MapNode, list[Problem]]:
    variants = tree.get("variants")
    over = variants.get(variant) if isinstance(variants, MapNode) else None
    if not isinstance(over, MapNode):
        return tree, []  # said by the shape of variants
    path = f"variants.{variant}"
    problems = [
        Problem(key.where, "a variant cannot change this", f"{path}.{key.text}")
        for key, _ in over.items
        if key.text in OVERLAY_KEYS
    ]
    laid = overlay(tree, MapNode(tuple(item for item in over.items if item[0].text not in OVERLAY_KEYS), over.where))
    assert isinstance(laid, MapNode)
    return laid, problems


def _wrong_name(tree: Node, name: str) -> list[Problem]:
    said = tree.get("lane") if isinstance(tree, MapNode) else None
    text = getattr(said, "text", name)
    if said is None or text == name:
        return []
    return [Problem(said.where, f"says {text}, but the file is {name}{SUFFIX}", "lane", "they must agree")]


def _misnamed(root: Path) -> list[Problem]:
    """Report files in lanes/ that look like lanes and would never be found."""
    try:
        found = sorted(path.name for path in (root / LANES_DIR).iterdir())
    except OSError:
        return []
    problems = []
    for file in found:
        if file.endswith(".yml"):
            problems.append(Problem(f"{LANES_DIR}/{file}", f"a lane's file ends in {SUFFIX}"))
        elif file.endswith(SUFFIX) and not re.fullmatch(LANE_NAME, file.removesuffix(SUFFIX)):
            problems.append(Problem(f"{LANES_DIR}/{file}", f"a lane's file is {LANE_NAME_FORM}, and {SUFFIX}"))
    return problems


def _digest(lane: Lane) -> str:
    """Return the sha256 of the lane's canonical JSON: keys sorted, no spaces, UTF-8; the listen address held out."""
    held_out = {"host", "port", "sha256", "missing"}
    content = {key: value for key, value in to_json(lane).items() if key not in held_out}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
