"""The expert maps of the demo's twins: the reference model's experts, ranked by how often they are picked."""

from __future__ import annotations

import json

# The experts of each layer of the model that the demo serves (shape small, seed 41), busiest first. Counted by the
# engine itself (MEGA_COUNT) while it answered the 40 prompts of the profile `general` with 256 tokens each: with 11 of
# 48 cold, 14 to 17 % of the picks are cold ones; with 16, 23 to 27 %.
_RANKED = """\
17 5 22 27 46 23 19 29 14 2 43 26 7 36 34 1 44 11 45 39 10 28 30 37
9 47 38 40 3 18 25 32 41 21 15 13 0 16 4 6 8 12 20 35 42 24 31 33

24 39 30 32 42 34 12 2 7 35 26 19 31 10 38 40 5 9 1 14 16 41 4 27
22 46 18 17 43 36 28 15 21 20 3 8 47 37 29 44 11 25 23 0 6 33 45 13

18 7 9 8 19 33 17 45 13 41 23 26 47 46 40 11 5 42 10 38 31 3 20 37
14 15 34 30 2 39 43 21 32 36 0 24 16 25 27 1 22 12 4 29 35 6 28 44

29 47 10 0 7 23 11 31 21 44 45 27 6 39 41 42 24 28 37 32 40 8 30 2
35 16 3 13 33 9 25 15 34 46 43 36 38 26 22 18 20 1 19 12 14 5 17 4
"""


def demo_map(hot: int) -> str:
    """Given how many experts of each layer are hot, return the map with the busiest of them hot, as JSON."""
    layers = {}
    for layer, ranked in enumerate(_RANKED.split("\n\n")):
        ids = [int(word) for word in ranked.split()]
        layers[str(layer)] = {"cold": ids[hot:], "hot": ids[:hot]}
    return json.dumps({"layers": layers, "meta": {"n_hot": hot}}) + "\n"
