"""The Prober of a world in memory (fake_world.py): what its listeners would answer, and whose ports they are."""

from __future__ import annotations

from urllib.parse import urlsplit

from lanectl.core.health import HttpSample, HttpTarget, Kind, Rung
from lanectl.ports import PortOwner
from tests.support.fake_world import Listener, World

AUTH = (401, 403)


class FakeProber:
    """See `Prober`. Held to what `HttpProber` says of a real server by tests/contract/test_prober.py."""

    def __init__(self, world: World) -> None:
        self._world = world

    def http(self, target: HttpTarget) -> HttpSample:
        listeners = self._world.listeners(urlsplit(target.base_url).port or 80)
        if not listeners:
            return HttpSample(Rung.PORT, Kind.REFUSED, detail="connection refused")
        return _climb(target, listeners[0])

    def port(self, host: str, port: int) -> PortOwner:
        listeners = self._world.listeners(port)
        pids = frozenset(pid for listener in listeners for pid in listener.pids)
        return PortOwner(bool(listeners), pids, tuple(listener.name for listener in listeners))

    def can_bind(self, host: str, port: int) -> bool:
        return not self._world.listeners(port)


def _climb(target: HttpTarget, listener: Listener) -> HttpSample:
    program = listener.program
    if listener.frozen:
        return HttpSample(_first_rung(target), Kind.TIMEOUT, detail="no answer")
    if program.model is None:
        return HttpSample(_first_rung(target), Kind.BAD_ANSWER, detail="this is not HTTP")
    if target.health is not None and program.health_status != target.health_status:
        return _other_status(target.health, program.health_status)
    listed: tuple[str, ...] = ()
    model = target.model or program.model
    if target.models or (target.completion is not None and target.model is None):
        listed = (program.model,)
        wrong_length = target.max_model_len is not None and program.max_model_len != target.max_model_len
        if model != program.model or wrong_length:
            detail = f"/v1/models lists {program.model}; expected {model}"
            return HttpSample(Rung.MODELS, Kind.WRONG_MODEL, 200, detail, listed, model)
    if target.completion is None:
        return HttpSample(None, detail="answers", models=listed, model=model)
    if program.hangs:
        return HttpSample(Rung.COMPLETION, Kind.TIMEOUT, None, "no completion within its deadline", listed, model)
    return HttpSample(None, detail=f"{model} completed", models=listed, model=model, seconds=0.0)


def _first_rung(target: HttpTarget) -> Rung:
    if target.health is not None:
        return Rung.HEALTH
    return Rung.MODELS if target.models else Rung.COMPLETION


def _other_status(path: str, status: int) -> HttpSample:
    if status in AUTH:
        return HttpSample(Rung.AUTH, Kind.AUTH, status, f"{path} answers {status}")
    kind = Kind.REDIRECT if 300 <= status < 400 else Kind.STATUS
    return HttpSample(Rung.HEALTH, kind, status, f"{path} answers {status}")
