"""The systemd units of a site, as text: recovery at boot and by a timer, and a lane's watchdog. `lanectl units` prints
or installs them.

`KillMode=process` in each: what they start (containers' supervisors, guards, watchdogs) outlives them. Where systemd
runs those get scopes of their own; one that did not would be in the unit's control group, and be killed with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from lanectl.core.site import Site
from lanectl.errors import ExitCode

# Recovery itself decides with back-off what is due; a look a minute costs one short process.
TIMER_EVERY = "1min"
# After the daemon and after the refresh that writes CDI specs at boot: a lane cannot start before its GPU has a name.
AFTER = "docker.service nvidia-cdi-refresh.service network.target"
# A look takes 0.3 s of one core. So a lane is unwatched for some seconds, and a swap of hours costs no more than 6 % of
# a core for the tries that find the site locked.
WATCH_AGAIN_EVERY = "5s"
# Trying again helps neither: a trip is a person's to clear, and another lane serves, none is meant to, or the lane asks
# for no watchdog. Everything else passes: a swap at work, an engine that is away, a lane that is just being started.
WATCH_ENDS_WITH = (ExitCode.USAGE, ExitCode.TRIPPED)
ROOT = 0


@dataclass(frozen=True, slots=True)
class Unit:
    """`template`: systemd runs an instance of it for each lane, named NAME@LANE.service."""

    name: str
    text: str
    template: bool = False


def recover_service_name(site: Site) -> str:
    return f"lanectl-{site.id}-recover.service"


def recover_timer_name(site: Site) -> str:
    return f"lanectl-{site.id}-recover.timer"


def watch_service_name(site: Site, lane: str = "") -> str:
    """The template, or its instance for this lane. A lane's label needs no escaping: systemd allows all of it."""
    return f"lanectl-{site.id}-watch@{lane}.service"


def units(site: Site, *, python: str, user: str, uid: int) -> tuple[Unit, ...]:
    """Given a site, the interpreter that has lanectl, and who runs it, return the units."""
    command, runner = f"{_quoted(python)} -m lanectl --site {_quoted(site.root)}", _runner(user, uid)
    return (
        Unit(recover_service_name(site), _recover_service(site, command, runner)),
        Unit(recover_timer_name(site), _recover_timer(site)),
        Unit(watch_service_name(site), _watch_service(site, command, runner), template=True),
    )


def _recover_service(site: Site, command: str, runner: str) -> str:
    """`Type=oneshot` without a time-out: a restore takes as long as the lane's boot does. Exit 5 (DARK) and 75 (busy)
    are what they say, so the unit fails visibly on the first and not on the second."""
    return f"""\
[Unit]
Description=lanectl: bring back what site {site.name} owes
Documentation=man:systemd.service(5)
After={AFTER}
ConditionPathExists={_path(site.root)}/station.yaml

[Service]
Type=oneshot
{runner}
ExecStart={command} recover --if-needed
TimeoutStartSec=infinity
SuccessExitStatus={ExitCode.BUSY:d}
KillMode=process

[Install]
WantedBy=multi-user.target
"""


def _recover_timer(site: Site) -> str:
    return f"""\
[Unit]
Description=lanectl: look every minute whether site {site.name} owes something

[Timer]
OnBootSec={TIMER_EVERY}
OnUnitInactiveSec={TIMER_EVERY}
Unit={recover_service_name(site)}

[Install]
WantedBy=timers.target
"""


def _watch_service(site: Site, command: str, runner: str) -> str:
    """It follows the watchdog, and arms another one when that is gone. After the recovery of a boot, which arms it."""
    ends = " ".join(f"{code:d}" for code in WATCH_ENDS_WITH)
    return f"""\
[Unit]
Description=lanectl: see that %i of site {site.name} is watched while it serves
Documentation=man:systemd.service(5)
After={AFTER} {recover_service_name(site)}
ConditionPathExists={_path(site.root)}/station.yaml
StartLimitIntervalSec=0

[Service]
Type=exec
{runner}
ExecStart={command} watch %i
Restart=on-failure
RestartSec={WATCH_AGAIN_EVERY}
RestartPreventExitStatus={ends}
KillMode=process

[Install]
WantedBy=multi-user.target
"""


def _runner(user: str, uid: int) -> str:
    """Who runs it. Detached jobs of anyone but root are the user manager's; without a login nothing says where it is
    (source: pam_systemd(8), XDG_RUNTIME_DIR)."""
    return f"User={user}" if uid == ROOT else f"User={user}\nEnvironment=XDG_RUNTIME_DIR=/run/user/{uid}"


def _path(text: str) -> str:
    """A path in a unit's setting: `%` begins a specifier (source: systemd.unit(5))."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """A word of a command line in a unit (source: systemd.service(5), "Command lines"; systemd.syntax(7), quoting)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
