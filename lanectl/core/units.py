"""The systemd units of a site, as text: recovery at boot and by a timer. `lanectl units` prints or installs them."""

from __future__ import annotations

from dataclasses import dataclass

from lanectl.core.site import Site

# Recovery itself decides with back-off what is due; a look a minute costs one short process.
TIMER_EVERY = "1min"
# After the daemon and after the refresh that writes CDI specs at boot: a lane cannot start before its GPU has a name.
AFTER = "docker.service nvidia-cdi-refresh.service network.target"


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    text: str


def recover_service_name(site: Site) -> str:
    return f"lanectl-{site.id}-recover.service"


def recover_timer_name(site: Site) -> str:
    return f"lanectl-{site.id}-recover.timer"


def units(site: Site, *, python: str, user: str) -> tuple[Unit, ...]:
    """Given a site, the interpreter that has lanectl, and who runs it, return the units.

    `Type=oneshot` without a time-out: a restore takes as long as the lane's boot does. Exit 5 (DARK) and 75 (busy) are
    what they say, so the unit fails visibly on the first and not on the second.
    """
    command = f"{_quoted(python)} -m lanectl --site {_quoted(site.root)} recover --if-needed"
    service = f"""\
[Unit]
Description=lanectl: bring back what site {site.name} owes
Documentation=man:systemd.service(5)
After={AFTER}
ConditionPathExists={_path(site.root)}/station.yaml

[Service]
Type=oneshot
User={user}
ExecStart={command}
TimeoutStartSec=infinity
SuccessExitStatus=75
KillMode=process

[Install]
WantedBy=multi-user.target
"""
    timer = f"""\
[Unit]
Description=lanectl: look every minute whether site {site.name} owes something

[Timer]
OnBootSec={TIMER_EVERY}
OnUnitInactiveSec={TIMER_EVERY}
Unit={recover_service_name(site)}

[Install]
WantedBy=timers.target
"""
    return (Unit(recover_service_name(site), service), Unit(recover_timer_name(site), timer))


def _path(text: str) -> str:
    """A path in a unit's setting: `%` begins a specifier (source: systemd.unit(5))."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """A word of a command line in a unit (source: systemd.service(5), "Command lines"; systemd.syntax(7), quoting)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
