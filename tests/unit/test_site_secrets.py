"""Secrets are revealed in the body a container is made from, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lanectl.core.site import SecretRef
from lanectl.errors import ExitCode, LaneError
from lanectl.site.secrets import env_file_keys, reveal, reveal_text

VALUE = "v3ry-s3cret-${secrets.other}"


def secret_file(path: Path, text: str = VALUE, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_references_anywhere_in_a_body_are_replaced_once(tmp_path: Path) -> None:
    secrets = {
        "file": SecretRef("file", file=secret_file(tmp_path / "key", VALUE + "\n")),
        "env": SecretRef("env", env="TOKEN"),
    }
    env_file = secret_file(tmp_path / "env", "A='quoted value'\n# note\n\nB=x=y\nC=\n")
    body = {
        "Env": ["K=${secrets.file}", "T=Bearer ${secrets.env}", f"A=${{env_file:{env_file}:A}}", "P=plain $x ${port}"],
        "HostConfig": {"Tmpfs": {"/run": "${secrets.env}"}, "Init": True, "Ulimits": [{"Soft": 3}]},
        "StopTimeout": 5,
    }
    assert reveal(body, secrets, {"TOKEN": "t0k"}) == {
        "Env": [f"K={VALUE}", "T=Bearer t0k", "A=quoted value", "P=plain $x ${port}"],
        "HostConfig": {"Tmpfs": {"/run": "t0k"}, "Init": True, "Ulimits": [{"Soft": 3}]},
        "StopTimeout": 5,
    }
    assert body["Env"][0] == "K=${secrets.file}"  # type: ignore[index]  # the body itself keeps its references
    assert reveal_text(f"${{env_file:{env_file}:B}}|${{env_file:{env_file}:C}}", {}, {}) == "x=y|"


def test_an_env_file_names_its_variables_in_order(tmp_path: Path) -> None:
    assert env_file_keys(secret_file(tmp_path / "e", "B=1\n\n #c\nA=2\nB=3\n")) == ("B", "A")


@pytest.mark.parametrize(
    ("refs", "environ", "code", "words"),
    [
        ({}, {}, ExitCode.USAGE, "station.yaml does not give it"),
        ({"key": SecretRef("key", env="NOT_SET")}, {}, ExitCode.REFUSED, "NOT_SET is not set"),
        ({"key": SecretRef("key", env="EMPTY")}, {"EMPTY": ""}, ExitCode.REFUSED, "EMPTY is not set"),
        ({"key": SecretRef("key", file="/nowhere/at/all")}, {}, ExitCode.REFUSED, "No such file"),
        ({"key": SecretRef("key", file="/")}, {}, ExitCode.REFUSED, "not a regular file"),
        ({"key": SecretRef("key", file="a\0b")}, {}, ExitCode.REFUSED, "null"),
    ],
)
def test_a_secret_that_cannot_be_had(
    refs: dict[str, SecretRef], environ: dict[str, str], code: ExitCode, words: str
) -> None:
    with pytest.raises(LaneError) as caught:
        reveal_text("${secrets.key}", refs, environ)
    assert caught.value.exit_code == code
    assert words in str(caught.value)
    assert caught.value.hint or not refs


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o660, 0o601])
def test_a_secret_that_others_could_read_is_refused_with_the_command_that_helps(tmp_path: Path, mode: int) -> None:
    path = secret_file(tmp_path / "key", mode=mode)
    with pytest.raises(LaneError) as caught:
        reveal_text("${secrets.key}", {"key": SecretRef("key", file=path)}, {})
    assert f"{mode:04o}" in str(caught.value)
    assert caught.value.hint == f"chmod 600 {path}"
    with pytest.raises(LaneError):
        env_file_keys(path)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_its_owner_alone_is_fine(tmp_path: Path, mode: int) -> None:
    path = secret_file(tmp_path / "key", "k", mode)
    assert reveal_text("${secrets.key}", {"key": SecretRef("key", file=path)}, {}) == "k"


@pytest.mark.parametrize("text", ["just words\n", "=x\n", "A B=1\n", "export A=1\n", f"{VALUE}\n"])
def test_a_line_of_an_env_file_that_means_nothing_is_named_by_number_only(tmp_path: Path, text: str) -> None:
    path = secret_file(tmp_path / "env", "OK=1\n" + text)
    with pytest.raises(LaneError) as caught:
        env_file_keys(path)
    assert caught.value.exit_code == ExitCode.USAGE
    assert str(caught.value) == f"{path}:2: not NAME=VALUE"


def test_a_variable_that_left_its_env_file_since_is_refused(tmp_path: Path) -> None:
    path = secret_file(tmp_path / "env", "A=1\n")
    with pytest.raises(LaneError, match="B is no longer in it"):
        reveal_text(f"${{env_file:{path}:B}}", {}, {})


def test_no_message_holds_the_secret(tmp_path: Path) -> None:
    broken = tmp_path / "key"
    for content in (b"s3cret\xff\xfe", b"s3cret\0", b"", b"s3cret" * 100_000):
        broken.write_bytes(content)
        broken.chmod(0o600)
        with pytest.raises(LaneError) as caught:
            reveal_text("${secrets.key}", {"key": SecretRef("key", file=str(broken))}, {})
        assert "s3cret" not in f"{caught.value} {caught.value.hint}"
        assert caught.value.exit_code == ExitCode.REFUSED


def test_a_pipe_in_a_secrets_place_does_not_hold_the_swap_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(LaneError, match="not a regular file"):
        reveal_text("${secrets.key}", {"key": SecretRef("key", file=str(tmp_path / "key"))}, {})
