"""PromQL that Prometheus 3 evaluates differently from Prometheus 2.

https://prometheus.io/docs/prometheus/latest/migration/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodevitals.commands.rules.expression import selectors, tokens

_UNIT_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_COUNTING = re.compile(r"\b(?:count|sum)_over_time\s*\([^()\[\]]*\[[^\[\]:]*\]")
_RENAMED = re.compile(r"\bholt_winters\s*\(")
_DURATION_PART = re.compile(r"(?<!\d)(\d{1,15})(ms|[smhdwy])")
# `.+` and `.*` alone match a whole value with and without newlines, so they do not change.
_PLAIN_DOT = re.compile(r"\.(?![+*])")
_LITERAL_DOT = re.compile(r"\\\.|\[\.\]")


def changed_meanings(expression: str) -> Iterator[tuple[int, str]]:
    """Pairs of a line within the expression (0: the first) and what changes there."""
    yield from _whole_subqueries(expression)
    for match in _COUNTING.finditer(expression):
        line = expression.count("\n", 0, match.start())
        yield line, f"{match[0]} counts samples: the left end of a range is open on Prometheus 3"
    for match in _RENAMED.finditer(expression):
        line = expression.count("\n", 0, match.start())
        yield line, "holt_winters has another name on Prometheus 3"
    for selector in selectors(expression):
        for matcher in selector.matchers:
            if "~" in matcher.operator and _PLAIN_DOT.search(_LITERAL_DOT.sub("", matcher.value)):
                text = f"a dot in {matcher.value!r} also matches a newline on Prometheus 3"
                yield selector.line, text


def _whole_subqueries(expression: str) -> Iterator[tuple[int, str]]:
    """Subqueries whose range is a multiple of their step."""
    for token in tokens(expression):
        if token.kind == "range" and ":" in token.text:
            length, _, step = token.text[1:-1].partition(":")
            seconds, step_seconds = _seconds(length), _seconds(step)
            if step_seconds and abs(seconds / step_seconds - round(seconds / step_seconds)) < 1e-9:
                text = f"{token.text} has one sample more on Prometheus 2 than on 3"
                yield token.line, f"{text}: shorten the range by 1 ms"


def _seconds(duration: str) -> float:
    parts = _DURATION_PART.findall(duration)
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
