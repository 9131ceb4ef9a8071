"""Boot facts: values read from log lines, and what the spec demands of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lanectl.core.log_lines import one_line, search
from lanectl.core.serving import Fact

FactValue = str | float | None

# "2,540,000" and "12.5", not "1,2,3": commas only between groups of three digits.
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")


def read_value(pattern: re.Pattern[str], line: str) -> FactValue:
    """Given a fact's pattern and a log line, return the fact's value, None where the line does not hold it.

    The value is group 1 as a float when it is a decimal number (thousands commas removed), else as text; the whole
    line when the pattern has no group or the group took no part.
    """
    found = search(pattern, line)
    if found is None:
        return None
    text = found.group(1) if pattern.groups else None
    if text is None:
        return one_line(line)
    return float(text.replace(",", "")) if _NUMBER.fullmatch(text) else one_line(text)


def problems(facts: Sequence[Fact], values: Mapping[str, FactValue]) -> tuple[str, ...]:
    """Given a service's facts and the values read, return one line for every fact that does not hold.

    A bound makes a fact required: a number nobody saw is not known to be large enough.
    """
    return tuple(problem for fact in facts if (problem := _problem(fact, values.get(fact.name))))


def unseen(facts: Sequence[Fact], values: Mapping[str, FactValue]) -> tuple[str, ...]:
    """Given a service's facts and the values read, return the names of demanded facts that have no value yet."""
    return tuple(fact.name for fact in facts if _demanded(fact) and values.get(fact.name) is None)


def _demanded(fact: Fact) -> bool:
    return fact.required or fact.at_least is not None or fact.at_most is not None


def _problem(fact: Fact, value: FactValue) -> str:
    if value is None:
        return f"{fact.name}: no log line matches {fact.log!r}" if _demanded(fact) else ""
    if fact.at_least is None and fact.at_most is None:
        return ""
    if not isinstance(value, float):
        return f"{fact.name}: {value!r} is not a number, a bound is set"
    if fact.at_least is not None and value < fact.at_least:
        return f"{fact.name}: {value:,.10g} is less than at_least {fact.at_least:,.10g}"
    if fact.at_most is not None and value > fact.at_most:
        return f"{fact.name}: {value:,.10g} is more than at_most {fact.at_most:,.10g}"
    return ""
