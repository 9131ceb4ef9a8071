"""How the test engine's packages, configuration, CDI spec and binds are worked out, without running any of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.engine_cdi import GPUS, NAMES, spec, write_specs
from tests.support.engine_daemon import daemon_config
from tests.support.engine_images import outermost, python_binds
from tests.support.engine_lock import SharedUse
from tests.support.engine_packages import EngineUnavailable, release, second_source

DEB822 = """\
Types: deb deb-src
# a comment that a mirror's tool left
URIs: mirror://archive.invalid/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: mirror://archive.invalid/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
OTHERS = "deb [arch=amd64 signed-by=/etc/apt/other.gpg] mirror://other.invalid/linux bookworm stable\n"
ONE_LINE = (
    "# deb mirror://old.invalid/debian bookworm main\n"
    "deb-src mirror://archive.invalid/debian bookworm main\n"
    "deb [arch=amd64,arm64 signed-by=/usr/share/keyrings/debian.gpg] mirror://archive.invalid/debian bookworm main  #\n"
)


def fields(source: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in source.splitlines())


def test_the_machines_own_debian_entry_is_taken_with_only_its_suite_changed() -> None:
    source = second_source({"docker.list": OTHERS, "debian.sources": DEB822}, "bookworm", "forky")
    assert fields(source) == {
        "Types": "deb",
        "Uris": "mirror://archive.invalid/debian",
        "Suites": "forky",
        "Components": "main",
        "Signed-By": "/usr/share/keyrings/debian-archive-keyring.gpg",
    }


def test_an_entry_of_the_old_one_line_form_is_taken_too() -> None:
    source = second_source({"sources.list": ONE_LINE, "docker.list": OTHERS}, "bookworm", "forky")
    assert fields(source) == {
        "Types": "deb",
        "Uris": "mirror://archive.invalid/debian",
        "Suites": "forky",
        "Components": "main",
        "Architectures": "amd64 arm64",
        "Signed-By": "/usr/share/keyrings/debian.gpg",
    }


def test_a_keyring_written_inside_the_entry_stays_whole() -> None:
    key = "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----\n"
    text = f"Types: deb\nURIs: mirror://archive.invalid/debian\nSuites: bookworm\nComponents: main\n{key}"
    source = second_source({"debian.sources": text}, "bookworm", "forky")
    assert "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n" in source


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"docker.list": OTHERS},
        {"debian.sources": DEB822.replace("Types: deb deb-src", "Enabled: no\nTypes: deb")},
        {"debian.sources": DEB822.replace("bookworm bookworm-updates", "trixie")},
        {"debian.sources": DEB822.replace("Types: deb deb-src", "Types: deb-src")},
    ],
    ids=["none", "somebody else's", "switched off", "another suite", "sources only"],
)
def test_no_entry_of_debian_main_is_said_and_not_guessed(entries: dict[str, str]) -> None:
    with pytest.raises(EngineUnavailable, match="bookworm"):
        second_source(entries, "bookworm")


def test_the_distribution_and_its_codename_are_read() -> None:
    assert release('ID=debian\nVERSION_CODENAME=bookworm\nNAME="Debian GNU/Linux"\n') == ("debian", "bookworm")
    assert release('ID="other"\n') == ("other", "")


def test_a_second_daemon_shares_no_folder_no_socket_and_no_bridge_with_the_first(tmp_path: Path) -> None:
    first = daemon_config(tmp_path / "a", tmp_path / "run-a", [tmp_path / "cdi"], "lanectl-a")
    second = daemon_config(tmp_path / "b", tmp_path / "run-b", [tmp_path / "cdi"], None)
    for key in ("data-root", "exec-root", "pidfile", "hosts", "bridge"):
        assert first[key] != second[key], key
    assert second["bridge"] == "none"
    assert second["iptables"] is False
    assert first["cdi-spec-dirs"] == second["cdi-spec-dirs"] == [str(tmp_path / "cdi")]


def test_every_test_gpu_is_a_cdi_device_with_its_own_node(tmp_path: Path) -> None:
    write_specs(tmp_path)
    written = [json.loads(file.read_text()) for file in tmp_path.iterdir()]
    assert written == [spec()], "the same device in two files would make it vanish"
    devices = {device["name"]: device["containerEdits"] for device in written[0]["devices"]}
    assert set(devices) == set(GPUS.values())
    assert {f"{written[0]['kind']}={name}" for name in devices} == set(NAMES.values())
    nodes = [edits["deviceNodes"][0]["path"] for edits in devices.values()]
    assert len(set(nodes)) == len(nodes)


def test_the_binds_show_a_container_this_interpreter_and_this_repository_read_only() -> None:
    binds = python_binds()
    sources = [Path(bind.split(":")[0]) for bind in binds]
    assert all(bind == f"{source}:{source}:ro" for bind, source in zip(binds, sources, strict=True))
    for needed in (Path(sys.executable), Path(sys.base_prefix), Path(__file__)):
        assert any(source == needed or source in needed.parents for source in sources), needed


def test_a_path_inside_another_one_is_bound_once() -> None:
    paths = [Path("/usr"), Path("/opt/x"), Path("/usr/local"), Path("/opt/x"), Path("/opt")]
    assert outermost(paths) == [Path("/usr"), Path("/opt")]


def test_only_the_last_user_tidies_up_and_the_next_one_prepares_again(tmp_path: Path) -> None:
    log: list[str] = []
    first, second, third = (SharedUse(tmp_path) for _ in range(3))
    first.enter(lambda: log.append("prepared"))
    second.enter(lambda: log.append("looked"))
    first.leave(lambda: log.append("first tidied"))
    second.leave(lambda: log.append("second tidied"))
    third.enter(lambda: log.append("prepared"))
    third.leave(lambda: log.append("third tidied"))
    third.leave(lambda: log.append("tidied twice"))
    assert log == ["prepared", "looked", "second tidied", "prepared", "third tidied"]
