"""What log lines say: one clean line for a person, patterns found in a line, the line that names a failure's cause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MAX_DETAIL = 300  # characters: two terminal lines are read, a screenful is not

# Terminal colours (ECMA-48 control sequences): vLLM colours its "(EngineCore pid=…)" prefix, also into a file.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
# "OSError: …", "torch.cuda.OutOfMemoryError: …", after any prefix such as "(EngineCore pid=7) ERROR 11-29 12:00:01".
_EXCEPTION = re.compile(r"(?:^|\s)(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)(?::|\s*$)")
_POINTS_ELSEWHERE = re.compile(r"[Ss]ee (?:the )?root cause above")
_TRACEBACK_HEADER = re.compile(r"Traceback \(most recent call last\)")


def one_line(text: str, limit: int = MAX_DETAIL) -> str:
    """Given any text, return it as one printable line of at most `limit` characters, safe for a terminal."""
    clean = _UNPRINTABLE.sub(" ", _ESCAPES.sub("", text)).strip()
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def parts(line: str) -> tuple[str, ...]:
    """Given a log line, return its parts: colours removed, split where a progress bar went back to the start."""
    plain = _ESCAPES.sub("", line) if "\x1b" in line else line
    return tuple(plain.split("\r")) if "\r" in plain else (plain,)


def search(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    """Given a pattern and a log line, return the first match in any of the line's parts (`^`: a start)."""
    for part in parts(line):
        found = pattern.search(part)
        if found:
            return found
    return None


def matches_any(patterns: Iterable[re.Pattern[str]], line: str) -> bool:
    return any(search(pattern, line) for pattern in patterns)


def last_words(lines: Sequence[str], fatal: Sequence[re.Pattern[str]] = ()) -> str:
    """Given a log's tail, return the line that best says why its writer failed, "" for an empty log.

    In order: the last line the spec calls fatal, the last that looks like an exception, the last line. The header of a
    traceback says nothing, so the exception under it is preferred even where the spec's pattern is the header; so is
    the cause that a line such as vLLM's "Engine core initialization failed. See root cause above." points to.
    """
    telling = [line for line in lines if not (_TRACEBACK_HEADER.search(line) or _POINTS_ELSEWHERE.search(line))]
    for wanted in (fatal, (_EXCEPTION,)):
        for line in reversed(telling):
            if matches_any(wanted, line):
                return one_line(line)
    return next((one_line(line) for line in reversed(lines) if one_line(line)), "")
