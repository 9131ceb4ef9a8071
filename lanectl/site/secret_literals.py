"""Recognise a secret that was written out in a spec. What is found is named by its kind, never shown."""

from __future__ import annotations

import re

# Prefixes their issuers publish so that scanners can find leaked keys; the length keeps ordinary words out.
_KINDS = (
    ("Hugging Face token", r"\bhf_[A-Za-z0-9]{16,}"),
    ("GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
    ("GitLab token", r"\bglpat-[A-Za-z0-9_-]{16,}"),
    ("API key", r"\b(?:sk|xai|nvapi)-[A-Za-z0-9_-]{16,}"),
    ("AWS access key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("Slack token", r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    ("private key", r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    ("bearer token", r"\bBearer [A-Za-z0-9._~+/-]{16,}"),
    ("JSON web token", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\."),
)
_PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|SECRET_?KEY|PRIVATE_?KEY|CREDENTIALS?)$",
    re.IGNORECASE,
)
MIN_SECRET = 8  # characters: shorter values (EMPTY, none, 512) are placeholders and numbers
SECRET_FLAGS = ("--api-key", "--hf-token", "--token", "--password")  # options whose value is a secret


def secret_kind(text: str) -> str | None:
    """Given any text of a spec, return the kind of secret it holds, None when it looks like none."""
    return next((kind for kind, pattern in _PATTERNS if pattern.search(text)), None)


def named_like_secret(name: str, value: str) -> bool:
    """Given a variable's name and literal value, say whether the value is a secret by its name. Paths are not."""
    literal = len(value) >= MIN_SECRET and not value.startswith("/") and "${" not in value
    return literal and _SECRET_NAME.search(name) is not None


def secret_argument(words: tuple[str, ...]) -> int | None:
    """Given a command's words, return the index of a literal that follows an option whose value is a secret."""
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag not in SECRET_FLAGS:
            continue
        if equals and value:
            return index
        if not equals and index + 1 < len(words) and not words[index + 1].startswith("-"):
            return index + 1
    return None
