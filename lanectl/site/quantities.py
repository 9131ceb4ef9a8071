"""Durations and sizes as people write them. Units are never guessed: a bare 2 is neither seconds nor minutes."""

from __future__ import annotations

import re

_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)(d|h|ms|m|s))", re.ASCII)
MAX_DURATION_S = 30 * 86400.0  # 30 days: longer is a slip of the finger, and far from any float's edge

# Decimal and binary prefixes are different units: IEC 80000-13.
_BYTES = (
    {"": 1, "B": 1}
    | {
        unit + suffix: factor**power
        for factor, suffix in ((1000, "B"), (1024, "iB"))
        for power, unit in enumerate("KMGT", 1)
    }
    | {"kB": 1000}
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", re.ASCII)
MAX_SIZE = 2**60  # 1 EiB
MIB = 1024 * 1024

DURATION_FORM = "a duration such as 500ms, 2s, 10m30s"
SIZE_FORM = "a size such as 8192MiB, 74GiB (binary) or 80GB (decimal)"


def parse_duration(text: str) -> float:
    """Given `2s`, `10m30s`, `1h`, `500ms`, return seconds. Raise ValueError saying what is wrong."""
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        raise ValueError(f"{text} has no unit; write {DURATION_FORM}")
    parts = _DURATION.findall(text)
    units = [unit for _, unit in parts]
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"not {DURATION_FORM}")
    if sorted(units, key=list(_SECONDS).index) != units or len(set(units)) != len(units):
        raise ValueError(f"{text}: each unit once, the largest first")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds > MAX_DURATION_S:
        raise ValueError(f"longer than {MAX_DURATION_S / 86400:g} days")
    return seconds


def parse_size(text: str) -> int:
    """Given `8192MiB`, `74GiB`, `80GB` or bytes without a unit, return bytes. Raise ValueError saying what is wrong."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"not {SIZE_FORM}")
    number, unit = match.groups()
    if unit not in _BYTES:
        raise ValueError(f"{unit} is not a unit; write {SIZE_FORM}")
    value = float(number) * _BYTES[unit] if "." in number else int(number[:40]) * _BYTES[unit]
    if value > MAX_SIZE or len(number) > 40:
        raise ValueError("larger than 1 EiB")
    if value != int(value):
        raise ValueError(f"{text} is not a whole number of bytes")
    return int(value)


def to_mib(size: int) -> int:
    """Return the size in MiB, rounded up."""
    return -(-size // MIB)
