"""What the set-up of the real vLLM says and remembers, without installing it."""

from __future__ import annotations

from pathlib import Path

from tests.vllm.setup import TORCH, _once, _why_not


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
