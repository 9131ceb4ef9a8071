"""`lanectl units`: print the site's systemd units, or write them where systemd reads them."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

from lanectl.core.site import Site
from lanectl.core.units import Unit, units
from lanectl.errors import ExitCode, LaneError
from lanectl.store.files import write_atomic

SYSTEM_UNITS = Path("/etc/systemd/system")
UNIT_MODE = 0o644  # systemd and every user may read them; they hold no secret


def site_units(site: Site) -> tuple[Unit, ...]:
    """Return the units for this interpreter and user."""
    uid = os.geteuid()
    return units(site, python=sys.executable, user=pwd.getpwuid(uid).pw_name, uid=uid)


def install(site: Site, folder: Path = SYSTEM_UNITS) -> tuple[Path, ...]:
    """Write the units into `folder`; return their paths. Raise `LaneError` (exit 2) when that is not possible."""
    if not folder.is_dir():
        raise LaneError(
            f"{folder} is not a directory",
            "where systemd does not run there is nothing to install: run `lanectl recover --if-needed` from what does",
            ExitCode.USAGE,
        )
    written = []
    for unit in site_units(site):
        write_atomic(folder / unit.name, unit.text.encode(), UNIT_MODE)
        written.append(folder / unit.name)
    return tuple(written)
