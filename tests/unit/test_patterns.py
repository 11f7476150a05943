"""Every regular expression of the package takes a time that is proportional to its text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from testbed.patterns import (
    Source,
    TooSlowError,
    UsedPattern,
    apply,
    cpu_limit,
    global_patterns,
    hostile_texts,
)

# The square of it takes seconds at the least; a proportional time is some milliseconds.
SIZE = 40_000
CPU_SECONDS = 1.0
LONG = 1 << 18
# The methods of patterns within a list or a tuple, by their module.
CONTAINED = {
    "nodevitals.probes.kernel_log.lines": ("match",),
    "nodevitals.probes.kernel_log.families": ("match",),
    "nodevitals.probes.fabric.tools": ("search",),
    "nodevitals.probes.services.processes": ("match",),
}
# Where patterns are put together: of constants, of an escaped name, of an operator's own rules.
DYNAMIC = (
    "checks/verdicts/bus.py",
    "probes/fabric/tools/report.py",
    "probes/kernel_log/lines.py",
    "probes/kernel_log/families.py",
    "probes/mounts/ownfiles.py",
    "commands/rules/check_expressions.py",
    "commands/rules/alert_labels.py",
    "commands/rules/promql/knowledge.py",
    "commands/rules/routes.py",
    "commands/rules/backtest/",
    "commands/rules/site/",
)
SOURCE = Source()


def _methods(module: str, name: str, contained: bool) -> tuple[str, ...]:
    if not contained:
        return tuple(sorted(SOURCE.methods.get(name, ())))
    return next((found for place, found in CONTAINED.items() if module.startswith(place)), ())


def used_patterns() -> list[UsedPattern]:
    """Return every pattern, of globals and of calls of `re` with a constant."""
    found = [
        UsedPattern(f"{module}.{name}", pattern, _methods(module, name, contained))
        for module, name, contained, pattern in global_patterns()
    ]
    return found + [
        UsedPattern(place, re.compile(pattern), (method,))
        for place, method, pattern in SOURCE.inline
    ]


PATTERNS = used_patterns()


def test_all_patterns_are_found() -> None:
    """A pattern that no test sees would have to be read by people."""
    assert len(PATTERNS) > 90
    assert [place for place in SOURCE.dynamic if not place.startswith(DYNAMIC)] == []
    assert SOURCE.flagged == [], "move them to the module's level"
    assert [used.place for used in PATTERNS if not used.methods] == []


@pytest.mark.parametrize("used", PATTERNS, ids=lambda used: used.place)
def test_time_is_proportional_to_the_text(used: UsedPattern) -> None:
    for method in used.methods:
        for text in hostile_texts(used.pattern, SIZE):
            _apply(used.pattern, method, text)


@pytest.mark.parametrize("used", PATTERNS, ids=lambda used: used.place)
def test_a_long_text_of_one_character(used: UsedPattern) -> None:
    for method in used.methods:
        for character in ("\n", " ", "0", "a", '"'):
            text: str | bytes = character * LONG
            if isinstance(used.pattern.pattern, bytes):
                text = character.encode() * LONG
            _apply(used.pattern, method, text, 3 * CPU_SECONDS)


def _apply(
    pattern: re.Pattern[Any], method: str, text: str | bytes, seconds: float = CPU_SECONDS
) -> None:
    try:
        with cpu_limit(seconds):
            apply(pattern, method, text)
    except TooSlowError:
        pytest.fail(f"{method} of {pattern.pattern!r} is slow on {text[:60]!r}…{text[-3:]!r}")


def test_slow_pattern_is_found() -> None:
    """The texts make each known kind of slow pattern slow."""
    slow = [
        (r"(?m)^\s*a", "search"),
        (r"(\d+)x", "search"),
        (r"a.*b.*c", "match"),
        (r"\s*([A-Z][^:]*?)\s*:", "fullmatch"),
        (r"\[[^\]]*\]", "finditer"),
        (r"(?:a+)+b", "match"),
        (r'"(?:\\.|[^"\\])*"', "finditer"),
    ]
    for pattern, method in slow:
        with pytest.raises(TooSlowError), cpu_limit(CPU_SECONDS / 4):
            for text in hostile_texts(re.compile(pattern), SIZE):
                apply(re.compile(pattern), method, text)
