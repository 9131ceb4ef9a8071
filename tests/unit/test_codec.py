"""Values to JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lanectl.core.codec import CodecError, from_json, to_json
from lanectl.core.lane import GpuMemory, Ready, Restart
from lanectl.core.owed import Desired, Owed, Production, Tripped
from tests.support.owed import an_owed, an_owed_service

SERVICES = (
    an_owed_service("sidecar", ready=Ready(log="^serving", fatal=("a", "b")), memory=GpuMemory("rtx", "GPU-1")),
    an_owed_service("server", restart=Restart("on-failure", 3), ready=None, devices=("nvidia.com/gpu=GPU-1",)),
)
PRODUCTION = Production(
    current=an_owed(*SERVICES),
    previous=an_owed(),
    desired=Desired.STOPPED,
    tripped=Tripped("t", "r"),
    idle_mib={"g": 22},
)


def test_a_value_survives_the_way_through_json() -> None:
    assert from_json(Production, json.loads(json.dumps(to_json(PRODUCTION)))) == PRODUCTION


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"port": "30006"}, "Owed.port: str where int belongs"),
        ({"port": True}, "Owed.port: True where int belongs"),
        ({"services": [{"name": "x"}]}, r"Owed.services\[0\]"),
        ({"surprise": 1}, "unknown key 'surprise'"),
        ({"shm": "x"}, "Owed.shm: str where list belongs"),
        ({"variant": 3}, "Owed.variant: int where str belongs"),
    ],
)
def test_a_wrong_shape_is_named_with_its_path(change: dict[str, object], said: str) -> None:
    with pytest.raises(CodecError, match=said):
        from_json(Owed, to_json(an_owed()) | change)


def test_an_unknown_word_of_an_enum_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CodecError, match=r"'paused' is not one of \['serving', 'stopped'\]"):
        from_json(Production, to_json(replace(PRODUCTION)) | {"desired": "paused"})
