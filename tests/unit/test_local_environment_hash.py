"""The hash that names an environment: equal content, equal hash; any other content, another hash."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanectl.engine.environment import parse_id, parse_reference, reference, tree_sha256
from lanectl.errors import EngineError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "serve").write_bytes(b"#!/bin/sh\n")
    (root / "a").write_bytes(b"1")
    (root / "link").symlink_to("bin/serve")
    return root


def test_a_copy_elsewhere_has_the_same_hash(tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree, tmp_path / "copy", symlinks=True)
    assert tree_sha256(tmp_path / "copy") == tree_sha256(tree)


def test_running_it_changes_nothing(tree: Path) -> None:
    before = tree_sha256(tree)
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "anything").write_bytes(b"x")
    (tree / "old.pyc").write_bytes(b"x")
    os.utime(tree / "a", (0, 0))
    assert tree_sha256(tree) == before


def test_every_change_of_content_changes_it(tree: Path) -> None:
    seen = {tree_sha256(tree)}

    def changed() -> bool:
        before = len(seen)
        seen.add(tree_sha256(tree))
        return len(seen) == before + 1

    (tree / "a").write_bytes(b"2")
    assert changed()
    (tree / "a").rename(tree / "b")
    assert changed()
    (tree / "b").rename(tree / "bin" / "b")
    assert changed()
    (tree / "new").touch()
    assert changed()
    (tree / "link").unlink()
    assert changed()
    (tree / "link").symlink_to("./bin/serve")
    assert changed()
    (tree / "link").unlink()
    (tree / "link").write_bytes(b"./bin/serve")
    assert changed()


def test_a_link_is_its_text_not_what_it_points_to(tree: Path, tmp_path: Path) -> None:
    (tree / "out").symlink_to(tmp_path / "outside")
    before = tree_sha256(tree)
    (tmp_path / "outside").write_bytes(b"anything")
    assert tree_sha256(tree) == before


CONTENT = st.dictionaries(st.sampled_from(["a", "b", "ab", "a/b", "b/a"]), st.binary(max_size=3), max_size=4)


def make(root: Path, files: dict[str, bytes]) -> bool:
    for name, data in files.items():
        path = root / name
        if path.is_dir() or any(parent.is_file() for parent in path.parents):
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return True


@given(one=CONTENT, other=CONTENT)
def test_two_trees_have_one_hash_only_if_they_are_equal(
    tmp_path_factory: pytest.TempPathFactory, one: dict[str, bytes], other: dict[str, bytes]
) -> None:
    first, second = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other")
    if make(first, one) and make(second, other):
        assert (tree_sha256(first) == tree_sha256(second)) == (one == other)


def test_what_is_no_content_is_refused(tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    with pytest.raises(EngineError, match="fifo is no file, link or directory"):
        tree_sha256(tree)
    with pytest.raises(EngineError, match="No such file"):
        tree_sha256(tree / "absent")


def test_names_go_round(tree: Path) -> None:
    name = reference(tree)
    assert parse_reference(name) == (tree, tree_sha256(tree))
    assert parse_id("sha256:" + tree_sha256(tree)) == tree_sha256(tree)
    for ref in ("", "env:relative@sha256:" + "0" * 64, "env:/e", "env:/e@sha256:00", "repo@sha256:" + "0" * 64):
        assert parse_reference(ref) is None
        assert parse_id(ref) is None
