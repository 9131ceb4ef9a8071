"""How fast the reference engine writes, over HTTP, to lanectl's own measuring client in another process.

Greedy, 256 new tokens, general prompts, a fresh cache salt each. Cases: `one_stream` one request after another, the
median of several; `total_8` and `total_32` all streams of one burst together, from the first request sent to the last
token come. All experts are in fast memory there; `total_32_v23` and so on have 37 of 48 there, as in v25's map.

Run: python benches/reference_engine.py [--runs N] [--json]
"""

from __future__ import annotations

import secrets
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import command_line, interleaved, result, show

from lanectl.core.stats import NS_PER_S
from lanectl.measure.client import Endpoint, RequestShape, Stream
from lanectl.measure.driver import run_together
from lanectl.measure.profiles import BURST_8, BURST_32, GENERAL, ONE_A, Prompt
from lanectl.measure.record import Asked, read_capture
from tests.support.reference import ReferenceServer
from tests.support.reference_sidecar import PATIENT, ReferenceSidecar, write_map

RUNS = 9
UNIT = "tok/s"
MODEL = "bench"
ONE_STREAM_REQUESTS = 4  # a run at one stream: about half a second
ONE_STREAM_TPS, TOTAL_TPS = 1_500, 3_000  # what two cores must give …
PLACED_TPS = 1_000  # … and wherever the cold experts are
PLACED = ("v23", "october", "sidecar", "gracetier")
COLD = 11  # of 48: v25 has 89 of 384
PROMPTS = {cell.id: cell.prompts() for cell in GENERAL.cells}


def burst(endpoint: Endpoint, prompts: tuple[Prompt, ...]) -> float:
    """Send the prompts at once; return tokens a second, all together. Every request must be complete."""
    shape = RequestShape(MODEL, GENERAL.max_tokens)
    streams = [Stream(endpoint, shape.body(prompt.text, secrets.token_hex(8)), prompt.id) for prompt in prompts]
    run_together(streams, GENERAL.deadlines, lambda: None)
    samples = [
        read_capture(Asked("bench", prompt.id, prompt.id, prompt.text), stream.capture).sample()
        for prompt, stream in zip(prompts, streams, strict=True)
    ]
    wall_ns = max(sample.last_ns for sample in samples) - min(sample.send_ns for sample in samples)
    return sum(sample.tokens for sample in samples) / wall_ns * NS_PER_S


def one_after_another(endpoint: Endpoint) -> float:
    """Send some prompts, each when the one before is done; return the median of their tokens a second."""
    return statistics.median(burst(endpoint, (prompt,)) for prompt in PROMPTS[ONE_A][:ONE_STREAM_REQUESTS])


def started(stack: ExitStack, *options: str) -> Endpoint:
    """Start a server that the stack stops. Return where it is."""
    server = ReferenceServer("--shape", "small", "--served-model-name", MODEL, *options, environment=PATIENT)
    return Endpoint("127.0.0.1", stack.enter_context(server).port)


def placed(stack: ExitStack, placement: str, rowmap: Path) -> Endpoint:
    """Start a server with a placement of cold experts, and its sidecar if it needs one."""
    if placement == "sidecar":
        return started(stack, *stack.enter_context(ReferenceSidecar(rowmap, "--shape", "small")).server_options)
    return started(stack, "--placement", placement, "--rowmap", str(rowmap))


def main() -> None:
    options = command_line(__doc__, RUNS).parse_args()
    with ExitStack() as stack:
        rowmap = write_map(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "rowmap.json", "small", COLD)
        endpoint = started(stack)
        cases = {
            "one_stream": lambda: one_after_another(endpoint),
            "total_8": lambda: burst(endpoint, PROMPTS[BURST_8]),
            "total_32": lambda: burst(endpoint, PROMPTS[BURST_32]),
        }
        for name in PLACED:
            there = placed(stack, name, rowmap)
            cases[f"total_32_{name}"] = lambda there=there: burst(there, PROMPTS[BURST_32])
            cases[f"total_32_{name}"]()  # warm
        one_after_another(endpoint)
        values = interleaved(cases, options.runs)
    results = {case: result(rates, UNIT, digits=0) for case, rates in values.items()}
    bounds = {"one_stream": ONE_STREAM_TPS, "total_32": TOTAL_TPS}
    bounds |= {f"total_32_{name}": PLACED_TPS for name in PLACED}
    targets = {
        f"{case} at least {bound} {UNIT}": float(results[case]["median"]) >= bound for case, bound in bounds.items()
    }
    show(results, targets, as_json=options.json)


if __name__ == "__main__":
    main()
