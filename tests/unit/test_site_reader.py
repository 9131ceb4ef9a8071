"""The reader: places are right, YAML's traps do not bite, and nothing is too strange to be an answer."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from lanectl.errors import Problem
from lanectl.site.reader import MAX_BYTES, MAX_DEPTH, MAX_NODES, read_bytes, read_file
from lanectl.site.tree import ListNode, MapNode, Node, ScalarNode


def read(text: str | bytes) -> tuple[Node | None, list[Problem]]:
    return read_bytes(text.encode() if isinstance(text, str) else text, "f")


def good(text: str) -> Node:
    node, problems = read(text)
    assert problems == []
    assert node is not None
    return node


def plain(node: Node) -> object:
    """The tree without places, to compare with."""
    if isinstance(node, MapNode):
        return {key.text: plain(value) for key, value in node.items}
    return [plain(item) for item in node.items] if isinstance(node, ListNode) else node.text


def only(text: str | bytes) -> Problem:
    _, problems = read(text)
    assert len(problems) == 1, problems
    return problems[0]


def test_every_node_knows_its_line() -> None:
    root = good("a: 1\nb:\n  - x\n  - {c: d}\n")
    assert isinstance(root, MapNode)
    items = root.get("b")
    assert isinstance(items, ListNode)
    assert [item.where for item in items.items] == ["f:3", "f:4"]
    inner = items.items[1]
    assert isinstance(inner, MapNode)
    assert [(key.text, key.where) for key, _ in inner.items] == [("c", "f:4")]
    assert root.get("a") == ScalarNode("1", True, "f:1")


@pytest.mark.parametrize("text", ["on", "no", "yes", "0o17", "1:30", "017", "1_000", "1e3", "2026-10-22", ".inf", "~x"])
def test_yaml_1_1_guesses_nothing(text: str) -> None:
    root = good(f"key: {text}\n")
    assert isinstance(root, MapNode)
    assert root.get("key") == ScalarNode(text, True, "f:1")


def test_quoted_text_is_not_plain() -> None:
    root = good("a: 'true'\nb: |\n  17\n")
    assert root == MapNode(
        (
            (ScalarNode("a", True, "f:1"), ScalarNode("true", False, "f:1")),
            (ScalarNode("b", True, "f:2"), ScalarNode("17\n", False, "f:2")),
        ),
        "f:1",
    )


def test_a_duplicate_key_is_reported_with_both_lines_and_the_first_one_stays() -> None:
    node, problems = read("a: 1\nb: 2\na: 3\n")
    assert [str(problem) for problem in problems] == ["f:3: a is given twice (first on line 1)"]
    assert node is not None
    assert plain(node) == {"a": "1", "b": "2"}


def test_every_tab_is_reported_and_what_follows_is_still_read() -> None:
    node, problems = read("a:\n\tb: 1\n\tc: 2\nd: 3\nd: 4\n")
    assert [problem.where for problem in problems] == ["f:2", "f:3", "f:5"]
    assert "tab" in problems[0].message
    assert "spaces" in problems[0].hint
    assert "twice" in problems[2].message
    assert node is not None
    assert plain(node) == {"a": {"b": "1", "c": "2"}, "d": "3"}


def test_tabs_where_they_mean_nothing_are_left_alone() -> None:
    assert plain(good("a:\tb\nc: |\n  x\n  \ty\n")) == {"a": "b", "c": "x\n\ty\n"}


def test_tabs_that_no_width_explains_are_still_reported() -> None:
    node, problems = read("a:\n\tb: [\n")
    assert node is None
    assert [problem.where for problem in problems] == ["f:2"]


def test_anchors_aliases_and_merge_keys_as_compose_users_write_them() -> None:
    root = good("base: &b {x: 1, y: 2}\none:\n  <<: *b\n  y: 3\ntwo: {<<: [{z: 9}, *b]}\nthree: *b\n")
    assert plain(root) == {
        "base": {"x": "1", "y": "2"},
        "one": {"y": "3", "x": "1"},
        "two": {"z": "9", "x": "1", "y": "2"},
        "three": {"x": "1", "y": "2"},
    }


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 0, "empty"),
        ("# only a comment\n", 0, "empty"),
        ("---\n", 0, "empty"),
        ("a: 1\n---\nb: 2\n", 2, "a file holds one"),
        ("a: [1, 2\n", 2, "not YAML"),
        ("a: 'x\n", 2, "not YAML"),
        ("a: b: c\n", 1, "not YAML"),
        ("\nk: \x07\n", 2, "control characters"),
        ("x: *nothing\n", 1, "no anchor &nothing"),
        ("x: &a [*a]\n", 1, "&a contains itself"),
        ("x: !!python/object:os.system y\n", 1, "a tag"),
        ("x: !secret y\n", 1, "a tag"),
        ("a: 1\n? [1, 2]\n: 3\n", 2, "a key must be text, not a list"),
        ("? {a: b}\n: 3\n", 1, "a key must be text, not a mapping"),
        ("a: {<<: 3}\n", 1, "<< merges a mapping"),
        ("<<: [{a: b}, c]\n", 1, "<< merges a mapping"),
        ('x: "\\0"\n', 1, "a control character"),
        ('"\\e[31m": 1\n', 1, "a control character"),
        ("%YAML 3.0\n---\na: 1\n", 1, "not YAML"),
        (b"a: 1\nb: \xff\xfe\n", 2, "not UTF-8 text (byte 0xff)"),
        (b"\x00\x01\x02\x03", 1, "control characters"),
        ("[" * 5000, 1, ""),
        ("- " * 5000, 1, f"nested deeper than {MAX_DEPTH}"),
        ("a: " + "{b: " * 100 + "}" * 100, 1, f"nested deeper than {MAX_DEPTH}"),
    ],
)
def test_what_cannot_be_read_is_one_problem_with_its_line(text: str | bytes, line: int, words: str) -> None:
    problem = only(text)
    assert problem.where == ("f" if line == 0 else f"f:{line}")
    assert words in problem.message


def test_a_reference_that_yaml_reads_as_a_mapping_is_explained() -> None:
    assert only("a: {b: ${images.x}}\n").hint == "inside [ ] and { }, quote what holds ${…}"


def test_an_alias_bomb_is_bounded() -> None:
    layers = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    layers += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    problem = only("\n".join(layers))
    assert f"more than {MAX_NODES} values" in problem.message
    assert problem.where == "f:4"  # the third layer stands for 1,000 values, the next for ten times as many


def test_an_alias_cannot_hide_depth() -> None:
    deep = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [[[[[*a{n - 1}]]]]]\n" for n in range(1, 20))
    assert "nested deeper" in only(deep).message


def test_a_byte_order_mark_is_no_key() -> None:
    assert plain(good("\ufeffa: 1\n")) == {"a": "1"}


def test_files_that_are_no_files(tmp_path: Path) -> None:
    loop, pipe, large, dangling = (tmp_path / name for name in ("loop", "pipe", "large", "dangling"))
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    dangling.symlink_to(tmp_path / "nowhere")
    found = {path.name: read_file(path, path.name) for path in (tmp_path, loop, pipe, large, dangling)}
    found["nul"] = read_file(Path("a\0b"), "nul")
    assert all(node is None and len(problems) == 1 for node, problems in found.values())
    said = {name: problems[0].message for name, (_, problems) in found.items()}
    assert said[tmp_path.name] == said["pipe"] == "not a regular file"
    assert "symbolic links" in said["loop"]
    assert "larger than" in said["large"]
    assert "No such file" in said["dangling"]
    assert "null" in said["nul"]


def test_a_file_that_fails_while_it_is_read_is_a_problem() -> None:
    memory = Path("/proc/self/mem")  # a regular file whose first byte can never be read
    if not memory.exists():
        pytest.skip("no /proc here")
    assert "cannot be read" in read_file(memory, "f")[1][0].message


def test_random_bytes_are_never_a_traceback() -> None:
    noise = random.Random(20261122)
    for size in (1, 2, 5, 20, 300):
        for _ in range(200):
            node, problems = read(noise.randbytes(size))
            assert node is not None or problems
