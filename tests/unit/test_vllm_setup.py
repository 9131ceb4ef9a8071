"""What the set-up of the real vLLM says and remembers, without installing it."""

from __future__ import annotations

import sys
from pathlib import Path

from lanectl.site.load import check_all, lane_names, load_lane, load_site
from tests.support.docker_engine import DockerEngine
from tests.vllm.run import CANDIDATE, PRODUCTION, make_site
from tests.vllm.setup import TORCH, Installed, _once, _why_not


def test_a_missing_cpu_build_of_torch_is_explained() -> None:
    said = f"ERROR: Could not find a version\nERROR: No matching distribution found for torch=={TORCH}+cpu"
    assert "PIP_EXTRA_INDEX_URL" in _why_not(said)
    assert said.splitlines()[-1] in _why_not(said)


def test_another_failure_is_passed_on_in_pips_own_words() -> None:
    assert "No space left on device" in _why_not("…\nERROR: No space left on device")
    assert "PIP_EXTRA_INDEX_URL" not in _why_not("ERROR: No space left on device")


def test_a_step_is_done_once_for_a_recipe_and_again_after_a_crash_or_a_change(tmp_path: Path) -> None:
    stamp, made = tmp_path / "made.done", []

    def crash() -> None:
        made.append("crashed")
        raise KeyboardInterrupt

    _once(stamp, "one", lambda: made.append("one"))
    _once(stamp, "one", lambda: made.append("again"))
    try:
        _once(stamp, "two", crash)
    except KeyboardInterrupt:
        pass
    _once(stamp, "one", lambda: made.append("one after the crash"))
    assert made == ["one", "crashed", "one after the crash"]


def test_the_site_of_the_vllm_swap_is_valid_and_both_lanes_are_complete(tmp_path: Path) -> None:
    images = {"pyhost": "sha256:" + "a" * 64}
    engine = DockerEngine("unix:///nowhere/docker.sock", "private", "an-id", images, cdi={}, docker=None)
    python = Path(sys.executable)
    port = make_site(tmp_path / "site", engine, Installed(python, vllm=python, model=tmp_path))

    site = load_site(tmp_path / "site")
    assert check_all(site) == []
    assert lane_names(tmp_path / "site") == (PRODUCTION, CANDIDATE)
    for label in (PRODUCTION, CANDIDATE):
        lane = load_lane(site, label, public=True)
        assert lane.missing == ()
        assert lane.port == port
    assert load_lane(site, CANDIDATE, public=False).port != port
