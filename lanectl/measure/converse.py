"""Send real prompts to a server for what they make it do, such as checking its experts, not to time it."""

from __future__ import annotations

from collections.abc import Callable

from lanectl.measure.client import Endpoint, RequestShape, Stream
from lanectl.measure.driver import run_together
from lanectl.measure.profiles import GENERAL, SET_A, SET_B
from lanectl.measure.record import Asked, read_capture

# Several prompts in one request make a prefill of some hundred tokens: a step with many rows, as real traffic has.
PROMPTS_A_REQUEST = 4


def converse(base_url: str, model: str, max_tokens: int, check: Callable[[], None], api_key: str | None) -> int:
    """Send the general prompts, several to a request, one request after another; return how many were answered.

    Raise what `check` raises.
    """
    endpoint = Endpoint.parse(base_url, api_key)
    prompts = [prompt.text for prompt in (*SET_A.load(), *SET_B.load())]
    shape = RequestShape(model, max_tokens, dropped=frozenset({"cache_salt"}))
    answered = 0
    for start in range(0, len(prompts), PROMPTS_A_REQUEST):
        text = "\n\n".join(prompts[start : start + PROMPTS_A_REQUEST])
        asked = Asked("converse", f"converse-{start}", str(start), text)
        stream = Stream(endpoint, shape.body(text, ""), asked.request_id)
        run_together([stream], GENERAL.deadlines, check)
        answered += read_capture(asked, stream.capture).ok
    return answered
