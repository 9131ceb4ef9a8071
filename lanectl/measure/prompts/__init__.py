"""The prompts of the profiles: general requests as people write them, in three sets of twenty.

`a` and `b` are measured, `warmup` is only ever a warm-up. A set is known by the sha256 of its file: another text is
another set, and numbers of different sets are not to be compared.
"""
