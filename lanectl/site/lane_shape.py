"""The keys of a lane: what each may hold and what it means."""

from __future__ import annotations

from lanectl.site.service_shape import NAME, NAME_FORM, NAMES, PATH, SERVICE, VARIABLE
from lanectl.site.shapes import Duration, Flag, Key, ListOf, MapOf, OneOf, Overlay, Record, Shape, Str, Whole

# Grows with the gates and profiles that are built; a misspelt one must never be silently nothing.
GATES = ("byte-audit", "map-cosine", "map-handshake")
PROFILES = ("general", "quick")

LANE_NAME = r"[a-z0-9][a-z0-9._-]{0,62}"
LANE_NAME_FORM = "a name such as v25: small letters, digits, . _ -"
MAX_SERVICES = 32  # a lane has one or two

_watchdog = Record(
    (
        Key("counters", PATH, "the shared-memory file with the lane's counters", required=True),
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
                        Key("mount", PATH, "where each service sees it, read-only", required=True),
                        Key("services", NAMES, "the services that read it", required=True),
                    )
                ),
                "one expert map, bound by lanectl into each service that reads it",
            ),
            Key(
                "shm",
                ListOf(Str(form="a file /dev/shm/NAME", pattern=r"/dev/shm/(?!\.\.?$)[^/]+")),
                "removed once the lane is proven gone; nothing else ever is",
            ),
            Key("services", MapOf(SERVICE, NAME, NAME_FORM, most=MAX_SERVICES), "the containers", required=True),
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
