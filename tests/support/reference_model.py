"""The reference engine's model inside the test's own process, one scheduler step at a time."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lanectl.reference.boot import make_scheduler
from lanectl.reference.messages import Abort, Sampling, StepReport, Submit
from lanectl.reference.scheduler import Scheduler
from lanectl.reference.server import parser


def scheduler(*options: str) -> Scheduler:
    """A booted scheduler; tiny unless a shape is given."""
    settings: argparse.Namespace = parser().parse_args(["--shape", "tiny", "--max-model-len", "512", *options])
    return make_scheduler(settings, lambda _: None)[0]


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
