"""Stop containers of a lane that is not to serve, without removing them."""

from __future__ import annotations

from typing import Any

from lanectl.core.container import Status
from lanectl.core.owed import OwedService
from lanectl.core.serving import Restart
from lanectl.ports import ContainerEngine


def hold(engine: ContainerEngine, ref: str, service: OwedService) -> dict[str, Any]:
    """Stop it and keep it from waking by itself; return how it ended. One that is gone is fine.

    Raise what the engine raises.
    """
    container = engine.inspect(ref)
    if container is None:
        return {"how": "gone"}
    engine.set_restart(ref, Restart())
    if container.status is Status.PAUSED:
        engine.kill(ref)  # what is frozen hears no request to end, however long it is given
    stopped = engine.stop(ref, service.stop_grace_s)
    how = "kill" if container.status is Status.PAUSED else stopped.how
    return {"how": how, "seconds": round(stopped.seconds, 3), "exit_code": stopped.exit_code}


def park(engine: ContainerEngine, ref: str, service: OwedService, name: str) -> dict[str, Any]:
    """Stop it and give it the name under which nothing starts it by accident. Repeating it is fine."""
    engine.set_restart(ref, Restart())
    stopped = engine.stop(ref, service.stop_grace_s)
    engine.rename(ref, name)
    return {"how": stopped.how, "seconds": round(stopped.seconds, 3), "exit_code": stopped.exit_code}
