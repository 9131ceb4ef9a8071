"""The model's own tokenizer: text to token ids and back, and the chat template.

Token ids: the special tokens, then the 256 single bytes, then the pieces. Text is cut by the longest piece that
fits; what no piece covers becomes single bytes, so that any text comes back as it was. A special token is never
made from text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence

from lanectl.reference.pieces import pieces

BEGIN, END, SYSTEM, USER, ASSISTANT = range(5)
_SPECIALS = 5
_ROLES = {"system": SYSTEM, "developer": SYSTEM, "user": USER, "assistant": ASSISTANT, "tool": USER}

# Added to the head's output, part of the model. A mark of the chat template is never written; the end of a turn
# practically never unless asked for (a full-length answer is what a measurement wants); single bytes are rare and
# those outside printable ASCII rarer still, so that the text is words.
_NEVER = -1e9
_HARDLY_EVER = -40.0
_RARELY = -4.0


class Tokenizer:
    """Text in, token ids out, and the other way round."""

    def __init__(self) -> None:
        singles = [bytes([value]) for value in range(256)]
        written = [piece.encode() for piece in pieces()]
        self._bytes: list[bytes] = [b""] * _SPECIALS + singles + written
        self._id_of = {text: token for token, text in enumerate(self._bytes) if token >= _SPECIALS}
        longest_first = sorted(written, key=len, reverse=True)
        self._cut = re.compile(b"|".join([*map(re.escape, longest_first), b"."]), re.DOTALL)

    def __len__(self) -> int:
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        """Given text, return its token ids. A lone surrogate, which JSON can carry and UTF-8 cannot, counts as `?`."""
        return [self._id_of[part] for part in self._cut.findall(text.encode(errors="replace"))]

    def decode(self, tokens: Iterable[int]) -> str:
        """Given token ids, return their text; bytes that are not UTF-8 become U+FFFD, special tokens nothing."""
        return b"".join(self._bytes[token] for token in tokens).decode(errors="replace")

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Given (role, text) messages, return the prompt that asks for the assistant's next one. Raise KeyError for
        a role the template does not know."""
        prompt = [BEGIN]
        for role, text in messages:
            prompt += [_ROLES[role], *self.encode(text), END]
        return [*prompt, ASSISTANT]

    def head_bias(self) -> list[float]:
        """What the model adds to each token's logit."""
        bias = [_NEVER] * _SPECIALS
        bias[END] = _HARDLY_EVER
        bias += [_RARELY if 32 <= value < 127 else _HARDLY_EVER for value in range(256)]
        return bias + [0.0] * (len(self._bytes) - len(bias))

    def stream(self) -> Detokenizer:
        """Return a reader that turns one text's tokens into text, bit by bit."""
        return Detokenizer(self._bytes)


class Detokenizer:
    """Turns tokens into text as they come, holding back a character that is not complete yet."""

    def __init__(self, table: list[bytes]) -> None:
        self._table = table
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """Given the next token, return the text that is certain now (maybe nothing)."""
        return self._decoder.decode(self._table[token])

    def flush(self) -> str:
        """Return what is left at the end: U+FFFD for an unfinished character, else nothing."""
        return self._decoder.decode(b"", final=True)
