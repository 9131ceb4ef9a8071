"""The keys of a service: what each may hold and what it means. They are the Compose Specification's, with its meanings;
`ready`, `facts` and `memory` are lanectl's."""

from __future__ import annotations

from lanectl.site.shapes import (
    Duration,
    Either,
    Flag,
    Key,
    ListOf,
    MapOf,
    Number,
    OneOf,
    Record,
    Regex,
    Size,
    Str,
    Whole,
    Words,
)

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"
CONTAINER_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{1,62}"  # Docker's own rule, and shorter: lanectl adds to it while it swaps
NAME_FORM = "a name: letters, digits, . _ -"
CONTAINER_FORM = "two or more letters, digits, . _ -"
VARIABLE = r"[^=$\s]+"
ABSOLUTE = r"/.*"

NAMES = ListOf(Str(form="a service name", pattern=NAME, names=False))
_text = Str()
PATH = Str(form="an absolute path", pattern=ABSOLUTE)
_value = Str(form="a value", secrets=True, empty=True)
_limit = Whole(least=-1)

RESTART = r"no|always|unless-stopped|on-failure(:[0-9]{1,4})?"
LOG_DRIVERS = ("json-file", "local", "journald")  # readiness and facts come from the log, so it must be readable
CAPABILITY = r"[A-Z][A-Z_]+"

_volume = Either(
    one=Str(form='"SOURCE:TARGET" or "SOURCE:TARGET:ro"'),
    keyed=Record(
        (
            Key("type", OneOf(("bind",)), "bind: a path of the host; nothing else is used", default="bind"),
            Key("source", Str(form="a path"), "a path of the host", required=True),
            Key("target", PATH, "where the container sees it", required=True),
            Key("read_only", Flag(), "true: the container cannot write to it", default="false"),
        )
    ),
)

_ready = Record(
    (
        Key("log", Regex(), "a log line that says it is up"),
        Key("fatal", ListOf(Regex()), "log lines that end the wait at once"),
        Key("timeout", Duration(positive=True), "the whole wait, from the start of the container", default="30m"),
        Key(
            "health",
            Either(
                one=Str(form="a path such as /health", pattern=ABSOLUTE),
                keyed=Record(
                    (
                        Key(
                            "path", Str(form="a path such as /health", pattern=ABSOLUTE), "what is asked", required=True
                        ),
                        Key("status", Whole(100, 599), "the one status that is well", default="200"),
                    )
                ),
            ),
            "a path that must answer with exactly this status",
        ),
        Key("models", Flag(), "true: /v1/models lists served_model with max_model_len", default="false"),
        Key(
            "completion",
            Record(
                (
                    Key("max_tokens", Whole(1, 1024), "tokens asked for", default="1"),
                    Key("within", Duration(positive=True), "its deadline", default="60s"),
                )
            ),
            "a real completion must come back",
        ),
        Key(
            "api_key",
            Str(form="a secret, ${secrets.NAME}", pattern=r"\$\{secrets\.[^{}]+\}", secrets=True),
            "sent as a bearer token",
        ),
    )
)

_fact = Record(
    (
        Key("log", Regex(), "the line; its first group is the value", required=True),
        Key("required", Flag(), "true: the boot fails without the line", default="false"),
        Key("at_least", Number(), "the boot fails below"),
        Key("at_most", Number(), "the boot fails above"),
    )
)

_memory = Record(
    (
        Key(
            "gpu", Str(form="a role of station.yaml's gpus", names=False), "whose memory must come back", required=True
        ),
        Key("above_idle", Size(), "released: at most this much over the card's idle baseline", default="1024MiB"),
        Key("stable", Duration(), "for this long", default="5s"),
        Key("within", Duration(positive=True), "or the release has failed", default="120s"),
    )
)

SERVICE = Record(
    (
        Key(
            "container_name",
            Str(form=CONTAINER_FORM, pattern=CONTAINER_NAME),
            "the container's name while it serves",
            required=True,
        ),
        Key(
            "image",
            Str(form="an image by digest"),
            "repo@sha256:… or a local image id sha256:…; never a tag",
            required=True,
        ),
        Key("entrypoint", Words(), "instead of the image's"),
        Key("command", Words(), "instead of the image's; no shell"),
        Key(
            "environment",
            Either(
                many=ListOf(Str(form="NAME=VALUE", secrets=True), splice=True),
                keyed=MapOf(_value, VARIABLE, "a variable's name"),
            ),
            "variables; a secret only as ${secrets.NAME}",
        ),
        Key(
            "env_file",
            Either(one=Str(form="a path"), many=ListOf(Str(form="a path"))),
            "0600 files of NAME=VALUE lines",
        ),
        Key("volumes", ListOf(_volume, splice=True), "paths of the host; a relative one starts at the site"),
        Key("devices", ListOf(Str(form="a CDI device"), splice=True), "CDI names, GPUs by UUID"),
        Key("ipc", OneOf(("host", "private", "shareable", "none")), "the IPC namespace", default="the engine's"),
        Key("network_mode", OneOf(("host", "bridge", "none")), "the network", default="bridge"),
        Key(
            "ports",
            ListOf(Str(form='"[ADDRESS:]HOST:CONTAINER[/udp]"')),
            "published ports, on loopback unless an address is given; not with network_mode host",
        ),
        Key(
            "ulimits",
            MapOf(
                Either(
                    one=_limit,
                    keyed=Record(
                        (
                            Key("soft", _limit, "soft limit", required=True),
                            Key("hard", _limit, "hard limit", required=True),
                        )
                    ),
                ),
                r"[a-z]+",
                "a limit such as memlock",
            ),
            "limits; -1 is none",
        ),
        Key(
            "cap_add",
            ListOf(Str(form="a capability such as IPC_LOCK", pattern=CAPABILITY), splice=True),
            "capabilities",
        ),
        Key("security_opt", ListOf(_text, splice=True), "such as label=disable"),
        Key("shm_size", Size(), "size of the container's own /dev/shm", default="the engine's"),
        Key(
            "tmpfs",
            Either(one=Str(form='"/PATH" or "/PATH:OPTIONS"'), many=ListOf(Str(form='"/PATH" or "/PATH:OPTIONS"'))),
            "memory file systems",
        ),
        Key("user", _text, "user, or user:group", default="the image's"),
        Key("working_dir", PATH, "where it starts", default="the image's"),
        Key("depends_on", NAMES, "services that must be ready first"),
        Key(
            "restart",
            Str(form="no, always, unless-stopped, on-failure or on-failure:N", pattern=RESTART),
            'outside a swap; a lane with a watchdog must have "no"',
            default='"no"',
        ),
        Key(
            "logging",
            Record(
                (
                    Key("driver", OneOf(LOG_DRIVERS), "one whose log can be read back", default="json-file"),
                    Key(
                        "options",
                        MapOf(_text, NAME, "an option"),
                        "the driver's options",
                        default="max-size 64m, max-file 3",
                    ),
                )
            ),
            "bounded, so that no lane can fill the disk",
            default="json-file, 3 files of 64 MB",
        ),
        Key("stop_grace_period", Duration(positive=True), "between the stop signal and the kill", default="30s"),
        Key(
            "stop_signal",
            Str(form="a signal such as SIGTERM", pattern=r"(SIG)?[A-Z0-9+-]+|[0-9]{1,2}"),
            "asks it to end",
            default="SIGTERM",
        ),
        Key("init", Flag(), "true: a small init is its first process", default="false"),
        Key("ready", _ready, "when it counts as ready; exactly one service of a lane answers HTTP"),
        Key("facts", MapOf(_fact, r"[a-z][a-z0-9_]*", "a name such as kv_tokens"), "boot facts, asserted and recorded"),
        Key("memory", _memory, "when its GPU counts as released"),
    )
)
