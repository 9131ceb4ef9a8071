"""What goes over the wire: OpenAI's objects as vLLM writes them (source: vLLM 0.32 protocol classes)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

Payload = dict[str, Any]


def encoded(payload: Payload) -> bytes:
    """Given a JSON object, return its bytes: compact UTF-8, nothing escaped that need not be (as vLLM writes it).
    A lone surrogate, which UTF-8 cannot carry, becomes `?`."""
    return _ENCODER.encode(payload).encode(errors="replace")


def usage(prompt: int, completion: int) -> Payload:
    """Token counts of one request."""
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


@dataclass(frozen=True)
class Shapes:
    """Makes one answer's objects: the same id, time, model and fingerprint on all of them."""

    chat: bool
    answer_id: str
    created: int
    model: str
    fingerprint: str

    def role_chunk(self) -> Payload:
        """The chat stream's first chunk: the role and no text."""
        return self._chunk({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})

    def text_chunk(self, text: str, reason: str | None, token_ids: list[int] | None) -> Payload:
        """A piece of text, the reason when it is the last one, and the ids of its tokens when asked for."""
        body: Payload = {"delta": {"content": text}} if self.chat else {"text": text}
        choice: Payload = {"index": 0, **body, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        if token_ids is not None:
            choice["token_ids"] = token_ids
        return self._chunk(choice)

    def usage_chunk(self, counts: Payload) -> Payload:
        """The last chunk: no choices, the usage."""
        return {**self._top(self._stream_kind()), "choices": [], "usage": counts}

    def whole(
        self, text: str, reason: str, prompt_ids: list[int] | None, token_ids: list[int] | None, counts: Payload
    ) -> Payload:
        """The answer of a request that does not stream."""
        body: Payload = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choice: Payload = {"index": 0, **body, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        top = self._top("chat.completion" if self.chat else "text_completion")
        if token_ids is not None:
            choice["token_ids"] = token_ids
            (top if self.chat else choice)["prompt_token_ids"] = prompt_ids
        return {**top, "choices": [choice], "usage": counts}

    def _chunk(self, choice: Payload) -> Payload:
        return {**self._top(self._stream_kind()), "choices": [choice]}

    def _stream_kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _top(self, kind: str) -> Payload:
        return {
            "id": self.answer_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }
