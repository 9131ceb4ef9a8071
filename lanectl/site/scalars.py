"""What one scalar means: decided by the shape that asks for it, never by how YAML 1.1 would have read it."""

from __future__ import annotations

import re
import warnings
from typing import Any

from lanectl.site import shapes
from lanectl.site.quantities import DURATION_FORM, SIZE_FORM, parse_duration, parse_size
from lanectl.site.shapes import Shape
from lanectl.site.tree import ScalarNode, nearest

MAX_REGEX = 2000  # characters; a log marker has a few dozen
_NUMBER = re.compile(r"[-+]?\d{1,18}(\.\d{1,18})?", re.ASCII)


def form_of(shape: Shape) -> str:
    """Return what the shape wants, in words."""
    match shape:
        case shapes.Str():
            return shape.form
        case shapes.Flag():
            return "true or false"
        case shapes.Whole():
            return "a whole number"
        case shapes.Duration():
            return DURATION_FORM
        case shapes.Size():
            return SIZE_FORM
        case shapes.Regex():
            return "a regular expression"
        case shapes.OneOf():
            return " or ".join(shape.words)
        case _:
            return "a number"


def convert(shape: Shape, node: ScalarNode) -> Any:
    """Given a scalar that is not null, return it as its shape means it. Raise ValueError saying what is wrong."""
    match shape:
        case shapes.Duration():
            seconds = parse_duration(node.text)
            if shape.positive and seconds == 0:
                raise ValueError("must be longer than 0s")
            return seconds
        case shapes.Size():
            return parse_size(node.text)
        case shapes.Regex():
            return _regex(node.text)
        case shapes.OneOf():
            if node.text not in shape.words:
                raise ValueError(f"must be {form_of(shape)}{_near(node.text, shape.words)}")
            return node.text
        case shapes.Flag():
            if not node.plain or node.text not in ("true", "false"):
                raise ValueError("must be true or false, without quotes")
            return node.text == "true"
        case shapes.Whole():
            if not node.plain or _NUMBER.fullmatch(node.text) is None or "." in node.text:
                raise ValueError("must be a whole number, without quotes")
            return _bounded(int(node.text), shape)
        case _:
            if not node.plain or _NUMBER.fullmatch(node.text) is None:
                raise ValueError("must be a number, without quotes")
            return float(node.text)


def _near(text: str, words: tuple[str, ...]) -> str:
    hint = nearest(text, words)
    return f" ({hint})" if hint.startswith("did you mean") else ""


def _bounded(number: int, shape: shapes.Whole) -> int:
    if not shape.least <= number <= shape.most:
        bound = f"at least {shape.least}" if number < shape.least else f"at most {shape.most}"
        raise ValueError(f"must be {bound}")
    return number


def _regex(text: str) -> str:
    if len(text) > MAX_REGEX:
        raise ValueError(f"a regular expression longer than {MAX_REGEX} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(text)
    except re.error as error:
        place = "" if error.pos is None else f" at position {error.pos}"
        raise ValueError(f"not a regular expression: {error.msg}{place}") from None
    except (RecursionError, OverflowError, MemoryError):
        raise ValueError("not a regular expression: nested or repeated too much") from None
    return text
