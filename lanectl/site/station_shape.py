"""The keys of station.yaml: what differs between Stations. Nothing in it is interpolated; it gives the values."""

from __future__ import annotations

from lanectl.site.lane_shape import LANE_NAME, LANE_NAME_FORM
from lanectl.site.service_shape import NAME, NAME_FORM
from lanectl.site.shapes import Duration, Either, Key, ListOf, MapOf, OneOf, Record, Size, Str, Whole

UUID = r"(GPU|MIG)-[0-9A-Za-z][0-9A-Za-z-]*"
UUID_FORM = "a UUID such as GPU-…, as `nvidia-smi -L` shows it"
_uuid = Str(form=UUID_FORM, pattern=UUID)
_port = Whole(least=1, most=65535)
_name = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}"
_name_form = "a name: letters, digits, _ -"

STATION = Record(
    (
        Key("station", Str(form=NAME_FORM, pattern=NAME), "this Station's name, for people", required=True),
        Key(
            "engine",
            Record(
                (
                    Key("kind", OneOf(("docker", "local")), "docker, or local (supervised processes)", required=True),
                    Key(
                        "endpoint",
                        Str(form="unix:///PATH or tcp://HOST:PORT", pattern=r"unix:///.+|(tcp|https?)://.+"),
                        "docker only",
                        default="unix:///var/run/docker.sock",
                    ),
                    Key(
                        "daemon_id",
                        Str(form="the daemon's ID"),
                        "docker only: `docker info -f '{{.ID}}'`; pins the daemon",
                    ),
                    Key(
                        "cdi_spec_dirs",
                        ListOf(Str(form="a path")),
                        "where CDI specs are",
                        default="/etc/cdi, /var/run/cdi",
                    ),
                )
            ),
            "what runs the containers",
            required=True,
        ),
        Key(
            "host",
            Str(form="an address or host name", pattern=r"[0-9A-Za-z.:_-]+"),
            "where production listens",
            default="127.0.0.1",
        ),
        Key(
            "ports",
            Record(
                (
                    Key("public", _port, "production's port", required=True),
                    Key("trial", _port, "a candidate's port, on loopback only", required=True),
                )
            ),
            "the two ports",
            required=True,
        ),
        Key(
            "gpus",
            MapOf(
                Either(
                    one=_uuid,
                    keyed=Record(
                        (
                            Key("uuid", _uuid, "the card", required=True),
                            Key("idle", Size(), "memory it shows as used when nothing runs on it", default="0MiB"),
                        )
                    ),
                ),
                _name,
                _name_form,
            ),
            "GPUs by role: ${gpus.ROLE}",
        ),
        Key("paths", MapOf(Str(form="a path"), _name, _name_form), "${paths.NAME}; a relative one starts at the site"),
        Key(
            "images",
            MapOf(Str(form="an image by digest"), _name, _name_form),
            "${images.NAME}: repo@sha256:… or sha256:…",
        ),
        Key("args", MapOf(ListOf(Str(form="a word", empty=True)), _name, _name_form), '"*${args.NAME}" in a list'),
        Key(
            "secrets",
            MapOf(
                Record(
                    (
                        Key(
                            "env",
                            Str(form="a variable's name", pattern=r"[A-Za-z_][A-Za-z0-9_]*"),
                            "lanectl's own variable",
                        ),
                        Key("file", Str(form="a path"), "a file with mode 0600"),
                    )
                ),
                _name,
                _name_form,
            ),
            "${secrets.NAME}: where each secret is, one of env or file",
        ),
        Key(
            "thresholds",
            Record(
                (
                    Key("mem_available", Size(), "host memory a boot needs once production is gone", default="0MiB"),
                    Key("disk_free", Size(), "free disk for journal, logs and receipts", default="256MiB"),
                    Key(
                        "swap_deadline",
                        Duration(positive=True),
                        "the whole of a swap; then the guard restores",
                        default="4h",
                    ),
                    Key("restore_attempts", Whole(1, 100), "then DARK", default="3"),
                )
            ),
            "what preflight asks of the machine",
        ),
        Key(
            "production",
            Str(form=LANE_NAME_FORM, pattern=LANE_NAME + r"(@" + LANE_NAME + r")?"),
            "the lane that serves; state/production.json takes over after the first swap",
        ),
        Key(
            "reboot_recovery",
            OneOf(("required", "accepted")),
            "required: no swap unless the recover unit is enabled; accepted: you know",
            default="required",
        ),
    )
)
