"""The systemd units: what they run, what outlives them, when they try again; and systemd itself reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lanectl.core.site import EngineConfig, Site
from lanectl.core.units import Unit, units, watch_service_name
from lanectl.errors import ExitCode

ROOT = "/srv/the site%1"
PYTHON = "/opt/lanectl/bin/python"
SITE = Site(ROOT, "ab12", "station", EngineConfig("local"), "127.0.0.1", 8000, 8001)
VERIFY_WITHIN_S = 60.0


def made(user: str = "root", uid: int = 0) -> tuple[Unit, ...]:
    return units(SITE, python=PYTHON, user=user, uid=uid)


def settings(unit: Unit) -> dict[str, str]:
    return dict(line.split("=", 1) for line in unit.text.splitlines() if "=" in line)


def by_end(name_ends: str, **who: int | str) -> dict[str, str]:
    (unit,) = [unit for unit in made(**who) if unit.name.endswith(name_ends)]  # type: ignore[arg-type]
    return settings(unit)


def test_what_a_service_starts_outlives_it() -> None:
    services = [settings(unit) for unit in made() if unit.name.endswith(".service")]
    assert len(services) == 2
    assert [service["KillMode"] for service in services] == ["process", "process"]


def test_the_watch_unit_follows_one_lane_and_tries_again_where_that_helps() -> None:
    watch = by_end("-watch@.service")
    assert watch["ExecStart"] == f'"{PYTHON}" -m lanectl --site "/srv/the site%%1" watch %i'
    assert (watch["Restart"], watch["RestartSec"], watch["StartLimitIntervalSec"]) == ("on-failure", "5s", "0")
    assert "lanectl-ab12-recover.service" in watch["After"].split()
    final = {int(code) for code in watch["RestartPreventExitStatus"].split()}
    assert final == {ExitCode.USAGE, ExitCode.TRIPPED}


def test_only_the_watch_unit_is_a_template_and_a_variant_is_an_instance() -> None:
    assert [unit.name for unit in made() if unit.template] == [watch_service_name(SITE)]
    assert watch_service_name(SITE, "v25@check") == "lanectl-ab12-watch@v25@check.service"


def test_the_jobs_of_a_user_are_started_by_that_users_manager() -> None:
    assert "Environment" not in by_end("-recover.service")
    assert by_end("-recover.service", user="ops", uid=1001)["Environment"] == "XDG_RUNTIME_DIR=/run/user/1001"
    assert by_end("-watch@.service", user="ops", uid=1001)["User"] == "ops"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_reads_them_without_a_complaint(tmp_path: Path) -> None:
    site = Site(str(tmp_path / "the site%1"), "ab12", "station", EngineConfig("local"), "127.0.0.1", 8000, 8001)
    names = []
    for unit in units(site, python=str(shutil.which("true")), user="root", uid=0):
        (tmp_path / unit.name).write_text(unit.text)
        names.append(watch_service_name(site, "v25@check") if unit.template else unit.name)
        if unit.template:
            (tmp_path / names[-1]).symlink_to(unit.name)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in names)],
        capture_output=True,
        text=True,
        timeout=VERIFY_WITHIN_S,
        check=False,
    )
    about_ours = [line for line in (done.stdout + done.stderr).splitlines() if "ab12" in line]
    assert (done.returncode, about_ours) == (0, [])
