"""Which image names are allowed: by digest or by id, so that a lane is the same lane tomorrow."""

from __future__ import annotations

import re

_HOST = r"[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_BY_DIGEST = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*@sha256:[0-9a-f]{{64}}")
_BY_ID = re.compile(r"sha256:[0-9a-f]{64}")
_ENVIRONMENT = re.compile(r"env:/[^@]*@sha256:[0-9a-f]{64}")


def wrong_image(image: str, engine: str) -> tuple[str, str] | None:
    """Given an image and the engine's kind, return (what is wrong, what to do), None when it may be used."""
    if engine == "local":
        if _ENVIRONMENT.fullmatch(image):
            return None
        return "not an environment by its content", "the local engine's images are env:/DIR@sha256:64hex"
    if _BY_DIGEST.fullmatch(image) or _BY_ID.fullmatch(image):
        return None
    if image.startswith("env:"):
        return "an environment, which only the local engine runs", "give repo@sha256:64hex or sha256:64hex"
    if "@sha256:" in image or image.startswith("sha256:"):
        return "not an image by digest", "repo@sha256: and 64 small hex digits, without a tag"
    return (
        "a tag can mean another image tomorrow",
        "pin it: `docker image inspect -f '{{.Id}} {{.RepoDigests}}' IMAGE` shows its id and digests",
    )
