"""The reference engine's model inside the test's own process, one scheduler step at a time."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lanectl.reference.boot import Booted, boot_engine
from lanectl.reference.faults import Faults
from lanectl.reference.messages import Abort, Sampling, StepReport, Submit
from lanectl.reference.scheduler import Scheduler
from lanectl.reference.server import parser


class Lines:
    """The engine's log, kept."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def engine(self, message: str) -> None:
        self.written.append(message)

    def line(self, text: str) -> None:
        self.written.append(text)


def booted(*options: str, faults: str = "", log: Lines | None = None) -> Booted:
    """A booted engine; tiny unless a shape is given."""
    settings: argparse.Namespace = parser().parse_args(["--shape", "tiny", "--max-model-len", "512", *options])
    return boot_engine(settings, log or Lines(), Faults.read(faults.split()))


def scheduler(*options: str) -> Scheduler:
    """A booted engine's scheduler."""
    return booted(*options).scheduler


def ask(number: int, prompt: list[int], max_tokens: int = 16, salt: str = "", **sampling: object) -> Submit:
    """A greedy request, unless `sampling` says otherwise."""
    return Submit(number, prompt, max_tokens, Sampling(**sampling), salt)  # type: ignore[arg-type]


def run(
    engine: Scheduler, arrivals: dict[int, list[Submit | Abort]], each: Callable[[StepReport], None] | None = None
) -> dict[int, list[int]]:
    """Given what arrives before which step, step until all is done. Return every request's tokens by its number."""
    written: dict[int, list[int]] = {}
    step = 0
    while engine.busy or any(at >= step for at in arrivals):
        for message in arrivals.get(step, ()):
            if isinstance(message, Submit):
                engine.submit(message)
            else:
                engine.abort(message)
        report = engine.step()
        for output in report.outputs:
            written.setdefault(output.number, []).append(output.token)
        if each is not None:
            each(report)
        step += 1
    return written
