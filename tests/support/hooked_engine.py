"""A container engine on which something happens right after a call: what an operator or a program does meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lanectl.ports import ContainerEngine

Act = Callable[[str], object]


class HookedEngine:
    """Passes every call on to `engine`; what a test asked for happens after it."""

    def __init__(self, engine: ContainerEngine) -> None:
        self._engine = engine
        self._acts: list[tuple[str, str, Act]] = []

    def after(self, call: str, act: Act, ref: str = "") -> HookedEngine:
        """Have `act` happen after the next such call, of container `ref` (its id or name) where one is given."""
        self._acts.append((call, ref, act))
        return self

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._engine, name)

        def call(*words: Any, **named: Any) -> Any:
            result = method(*words, **named)
            ref = str(words[0]) if words and isinstance(words[0], str) else str(result)
            for entry in tuple(self._acts):
                wanted, of, act = entry
                if wanted == name and of in ("", ref):
                    self._acts.remove(entry)
                    act(ref)
            return result

        return call
