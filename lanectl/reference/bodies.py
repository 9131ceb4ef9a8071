"""Reading the body of a completions or chat request.

As vLLM does, a field nobody knows is accepted and ignored. A field that asks for something this engine does not do
is refused, so that no answer ever differs from what was asked for without a word.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lanectl.reference.fields import ApiError, Fields
from lanectl.reference.messages import Sampling
from lanectl.reference.tokenizer import Tokenizer

_COMPLETION_DEFAULT = 16  # max_tokens of /v1/completions when none is given, as in OpenAI's API
_SALT_LIMIT = 128  # characters of cache_salt; vLLM's limit
_BIAS_LIMIT = 100.0  # logit_bias goes from -100 to 100 in OpenAI's API
_SEED_LIMIT = 2**63
_STOP_LIMIT = 4  # stop strings, as in OpenAI's API

# Refused unless they have one of these harmless values.
_NOT_DONE: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "response_format": ({"type": "text"},),
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "use_beam_search": (False,),
    "prompt_embeds": (),
}


@dataclass(frozen=True)
class Asked:
    """What a request asks for."""

    chat: bool
    model: str
    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    cache_salt: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool


class BodyReader:
    """Reads bodies for one model: its names, tokenizer and longest context."""

    def __init__(self, names: list[str], tokenizer: Tokenizer, max_model_len: int) -> None:
        self._names = names
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len

    def read(self, raw: bytes, chat: bool) -> Asked:
        """Given a request body, return what it asks for. Raise ApiError."""
        body = Fields(_parsed(raw))
        model = body.text("model", self._names[0])
        if model not in self._names:
            raise ApiError(404, f"The model `{model}` does not exist.", "NotFoundError", "model")
        _refuse_what_is_not_done(body)
        prompt = self._chat_prompt(body) if chat else self._prompt(body)
        options = Fields(body.mapping("stream_options"))
        stream = body.flag("stream")
        if body.given("stream_options") and not stream:
            raise ApiError(400, "Stream options can only be defined when `stream=True`.", param="stream_options")
        max_tokens = self._max_tokens(body, chat, len(prompt))
        return Asked(
            chat=chat,
            model=model,
            prompt=prompt,
            max_tokens=max_tokens,
            sampling=self._sampling(body, max_tokens),
            stop=_stops(body),
            cache_salt=_salt(body),
            stream=stream,
            include_usage=options.flag("include_usage"),
            continuous_usage=options.flag("include_usage") and options.flag("continuous_usage_stats"),
            return_token_ids=body.flag("return_token_ids"),
        )

    def _prompt(self, body: Fields) -> list[int]:
        prompt = body.value("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
            prompt = prompt[0]
        if isinstance(prompt, str):
            prompt = self._tokenizer.encode(prompt)
        if not isinstance(prompt, list) or not all(type(token) is int for token in prompt):
            raise ApiError(400, "`prompt` must be one string or one list of token ids.", param="prompt")
        if not prompt:
            raise ApiError(400, "`prompt` must not be empty.", param="prompt")
        if not all(0 <= token < len(self._tokenizer) for token in prompt):
            raise ApiError(400, f"Token ids must be 0 to {len(self._tokenizer) - 1}.", param="prompt")
        return prompt

    def _chat_prompt(self, body: Fields) -> list[int]:
        messages = body.value("messages")
        if not isinstance(messages, list) or not messages:
            raise ApiError(400, "`messages` must be a list of at least one message.", param="messages")
        try:
            return self._tokenizer.chat([_message(message) for message in messages])
        except KeyError as unknown:
            raise ApiError(400, f"Unexpected message role: {unknown.args[0]!r}", param="messages") from None

    def _max_tokens(self, body: Fields, chat: bool, prompt: int) -> int:
        room = self._max_model_len - prompt
        if room < 1:
            raise ApiError(
                400,
                f"This model's maximum context length is {self._max_model_len} tokens. "
                f"However, your request has {prompt} input tokens. Please reduce the length of the input messages.",
                param="messages" if chat else "prompt",
            )
        name = "max_completion_tokens" if chat and body.given("max_completion_tokens") else "max_tokens"
        wanted = body.whole(name, room if chat else min(_COMPLETION_DEFAULT, room), least=1)
        if wanted > room:
            raise ApiError(
                400,
                f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's maximum context length "
                f"is {self._max_model_len} tokens and your request has {prompt} input tokens.",
                param=name,
            )
        return wanted

    def _sampling(self, body: Fields, max_tokens: int) -> Sampling:
        return Sampling(
            temperature=body.number("temperature", 1.0, 0.0, 100.0),
            top_p=body.number("top_p", 1.0, 1e-6, 1.0),
            top_k=max(body.whole("top_k", 0, least=-1), 0),
            seed=body.whole("seed", 0, least=0, most=_SEED_LIMIT) if body.given("seed") else None,
            min_tokens=body.whole("min_tokens", 0, least=0, most=max_tokens),
            ignore_eos=body.flag("ignore_eos"),
            logit_bias=self._bias(body),
        )

    def _bias(self, body: Fields) -> dict[int, float]:
        bias = {}
        for name, value in body.mapping("logit_bias").items():
            number = type(value) in (int, float) and abs(value) <= _BIAS_LIMIT
            if not (number and name.isascii() and name.isdigit() and int(name[:12]) < len(self._tokenizer)):
                raise ApiError(400, "`logit_bias` maps token ids to numbers from -100 to 100.", param="logit_bias")
            bias[int(name)] = float(value)
        return bias


def _refuse_what_is_not_done(body: Fields) -> None:
    for name, harmless in _NOT_DONE.items():
        value = body.value(name)
        # By type as well: to Python, `logprobs: 0`, which asks for something, equals `logprobs: false`.
        if value is not None and not any(type(value) is type(other) and value == other for other in harmless):
            raise ApiError(400, f"`{name}` is not supported by this engine.", param=name)


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise ApiError(400, f"The request body is not JSON: {problem}") from None
    if not isinstance(body, dict):
        raise ApiError(400, "The request body must be a JSON object.")
    return body


def _message(message: Any) -> tuple[str, str]:
    """Given one chat message, return its role and text; text parts are joined. Raise ApiError."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ApiError(400, "Every message must be an object with a `role`.", param="messages")
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": "" if content is None else content}]
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(400, "`content` must be a string or a list of text parts.", param="messages")
    return message["role"], "".join(map(str, texts))


def _stops(body: Fields) -> tuple[str, ...]:
    stop = body.value("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops):
        raise ApiError(400, "`stop` must be a string or a list of strings, none of them empty.", param="stop")
    if len(stops) > _STOP_LIMIT:
        raise ApiError(400, f"`stop` takes at most {_STOP_LIMIT} strings.", param="stop")
    return tuple(stops)


def _salt(body: Fields) -> str:
    salt = body.text("cache_salt", "")
    if len(salt) > _SALT_LIMIT or any(sign in salt for sign in "@/\\\0"):
        raise ApiError(
            400, f"`cache_salt` must be at most {_SALT_LIMIT} characters, none of @ / \\ NUL.", param="cache_salt"
        )
    return salt
