"""From logits to the next token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lanectl.reference.messages import Sampling
from lanectl.reference.tokenizer import END
from lanectl.reference.weights import Floats

_Doubles = NDArray[np.float64]


class Sampler:
    """Chooses one request's tokens, from that request's logits and random stream alone."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def choose(self, logits: Floats, written: int) -> int:
        """Given the logits of one row and the number of tokens written so far, return the next token."""
        wanted = self._sampling
        scores: _Doubles = logits.astype(np.float64)
        for token, bias in wanted.logit_bias.items():
            scores[token] += bias
        if written < wanted.min_tokens:
            scores[END] = -np.inf
        if wanted.temperature == 0.0:
            return int(scores.argmax())
        return self._draw(scores / wanted.temperature)

    def _draw(self, logits: _Doubles) -> int:
        order = np.argsort(-logits, kind="stable")
        chances = np.exp(logits[order] - logits[order[0]])
        chances /= chances.sum()
        kept = int(np.searchsorted(np.cumsum(chances), self._sampling.top_p)) + 1
        if self._sampling.top_k > 0:
            kept = min(kept, self._sampling.top_k)
        total = np.cumsum(chances[:kept])
        place = int(np.searchsorted(total, self._random.random() * total[-1], side="right"))
        return int(order[min(place, len(total) - 1)])
