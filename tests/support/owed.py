"""An owed lane for tests."""

from __future__ import annotations

from lanectl.core.lane import Completion, Ready, Restart
from lanectl.core.owed import Owed, OwedService


def an_owed_service(name: str = "server", **changes: object) -> OwedService:
    values: dict[str, object] = {
        "name": name,
        "container_name": f"prod-{name}",
        "container_id": f"id-of-prod-{name}",
        "image_id": "sha256:" + "a" * 64,
        "stop_grace_s": 5.0,
        "restart": Restart("unless-stopped"),
        "recreate": f"prod-{name}.json",
        "ready": Ready(health="/health", models=True, completion=Completion(), timeout_s=60.0),
    }
    return OwedService(**(values | changes))  # type: ignore[arg-type]


def an_owed(*services: OwedService) -> Owed:
    return Owed(
        lane="pg61",
        variant=None,
        spec_sha256="0" * 64,
        adopted=False,
        served_model="m",
        max_model_len=2048,
        host="127.0.0.1",
        port=30006,
        services=services or (an_owed_service(),),
    )
