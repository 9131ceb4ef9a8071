"""The keys of a lane: what each may hold and what it means. Service keys and their meaning are the Compose
Specification's; what it has no word for is lanectl's."""

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
    Overlay,
    Record,
    Regex,
    Shape,
    Size,
    Str,
    Whole,
    Words,
)

# Grows with the gates and profiles that are built; a misspelt one must never be silently nothing.
GATES = ("byte-audit", "map-cosine", "map-handshake")
PROFILES = ("general", "quick")

LANE_NAME = r"[a-z0-9][a-z0-9._-]{0,62}"
LANE_NAME_FORM = "a name such as v25: small letters, digits, . _ -"
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"  # Docker's own rule for container names, and shorter
NAME_FORM = "a name: letters, digits, . _ -"
VARIABLE = r"[^=$\s]+"
ABSOLUTE = r"/.*"
MAX_SERVICES = 32  # a lane has one or two

_names = ListOf(Str(form="a service name", pattern=NAME, names=False))
_text = Str()
_path = Str(form="an absolute path", pattern=ABSOLUTE)
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
            Key("target", _path, "where the container sees it", required=True),
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

_service = Record(
    (
        Key("container_name", Str(form=NAME_FORM, pattern=NAME), "the container's name while it serves", required=True),
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
        Key("working_dir", _path, "where it starts", default="the image's"),
        Key("depends_on", _names, "services that must be ready first"),
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

_watchdog = Record(
    (
        Key("counters", _path, "the shared-memory file with the lane's counters", required=True),
        Key(
            "stall",
            Duration(positive=True),
            "trip when work is in flight and nothing completes for this long",
            required=True,
        ),
        Key("mode", OneOf(("enforce", "observe")), "enforce kills, observe only reports", required=True),
        Key("on_trip", OneOf(("dark", "fallback")), "what a trip leads to", default="dark"),
        Key(
            "spins",
            Record(
                (
                    Key("service", Str(form="a service name", names=False), "whose environment", required=True),
                    Key(
                        "variable",
                        Str(form="a variable's name", pattern=VARIABLE, names=False),
                        "the spin limit",
                        required=True,
                    ),
                    Key("at_least", Whole(least=1), "lower or not given is refused", required=True),
                )
            ),
            "the spin limit that must outlast the stall",
        ),
    )
)


def _lane(extra: tuple[Key, ...]) -> Record:
    return Record(
        (
            Key(
                "lane",
                Str(form=LANE_NAME_FORM, pattern=LANE_NAME, names=False),
                "the file's name, without .yaml",
                required=True,
            ),
            Key("summary", Str(names=False), "one line for people"),
            Key("served_model", Str(form="a model's name"), "what /v1/models must list", required=True),
            Key("max_model_len", Whole(least=1), "and with this length"),
            Key(
                "map",
                Record(
                    (
                        Key(
                            "file",
                            Str(form="a path"),
                            "the expert map; its sha256 is in maps/MANIFEST.yaml",
                            required=True,
                        ),
                        Key("mount", _path, "where each service sees it, read-only", required=True),
                        Key("services", _names, "the services that read it", required=True),
                    )
                ),
                "one expert map, bound by lanectl into each service that reads it",
            ),
            Key(
                "shm",
                ListOf(Str(form="a file /dev/shm/NAME", pattern=r"/dev/shm/(?!\.\.?$)[^/]+")),
                "removed once the lane is proven gone; nothing else ever is",
            ),
            Key("services", MapOf(_service, NAME, NAME_FORM, most=MAX_SERVICES), "the containers", required=True),
            Key("watchdog", _watchdog, "kills the lane when its sidecar stalls"),
            Key(
                "drain",
                Record(
                    (
                        Key("idle_for", Duration(), "nothing running and nothing waiting for this long", required=True),
                        Key(
                            "deadline", Duration(positive=True), "then cut, and record how many were cut", required=True
                        ),
                    )
                ),
                "wait for its requests before it is stopped",
            ),
            Key(
                "before_boot",
                Record((Key("drop_page_cache", Flag(), "true: give the page cache back first", default="false"),)),
                "done before its first container starts",
            ),
            Key("requires", ListOf(OneOf(GATES)), "gate records that must exist for this map and image"),
            Key("gates", ListOf(OneOf(GATES)), "what must hold on this boot before traffic counts"),
            Key("stable_for", Duration(), "how long it must stay ready", default="0s"),
            Key(
                "measure",
                Record((Key("profile", OneOf(PROFILES), "what is measured", required=True),)),
                "how it is measured",
            ),
            Key("fallback", Str(form="a lane, or lane@variant", names=False), "the lane on_trip: fallback starts"),
            *extra,
        )
    )


OVERLAY_KEYS = frozenset({"lane", "variants"})  # what a variant cannot change
_variants: Shape = MapOf(Overlay(), LANE_NAME, "a name such as check")
LANE = _lane((Key("variants", _variants, "overlays: mappings merge, lists replace; lane@variant"),))
SERVICE_KEYS = tuple(key.name for key in _service.keys)
