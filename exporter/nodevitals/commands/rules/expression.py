"""What a PromQL expression reads: text in, its selectors out.

Not a parser: it finds names, label matchers and label lists, which is all that the checks need.
promtool judges the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
      | (?P<range>\[[^\]]*\])
      | (?P<number>0x[0-9a-fA-F]+|\d[\d.]*(?:[eE][+-]?\d+)?(?:ms|[smhdwy])?(?:\d+(?:ms|[smhdwy]))*)
      | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<operator>=~|!~|!=|==|<=|>=|[-+*/%^<>=@(){},])""",
    re.VERBOSE,
)
_LABEL_LISTS = ("by", "without", "on", "ignoring", "group_left", "group_right")
_AGGREGATIONS = (
    *("sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values"),
    *("bottomk", "topk", "quantile", "limitk", "limit_ratio"),
)
_WORDS = (*_LABEL_LISTS, *_AGGREGATIONS, "and", "or", "unless", "bool", "offset", "atan2")
_OPERATORS = ("=", "!=", "=~", "!~")
_UNIT_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
# The whole value is there: the one use of the dot that means the same with and without newlines.
_PLAIN_DOT = re.compile(r"\.(?![+*])")


class Matcher(msgspec.Struct, frozen=True):
    """`label operator "value"`."""

    label: str
    operator: str
    value: str


class Selector(msgspec.Struct, frozen=True):
    """A metric's name ('' where only matchers choose) and its matchers."""

    name: str
    matchers: tuple[Matcher, ...]


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str


def _tokens(expression: str) -> list[_Token]:
    found = []
    for match in _TOKEN.finditer(expression):
        kind = str(match.lastgroup)
        if kind != "comment":
            found.append(_Token(kind, match[0]))
    return [*found, _Token("end", "")]


def selectors(expression: str) -> Iterator[Selector]:
    """Every selector of an expression."""
    tokens = _tokens(expression)
    position = 0
    while position < len(tokens):
        token, following = tokens[position], tokens[min(position + 1, len(tokens) - 1)]
        position += 1
        if token.kind == "name" and token.text in _LABEL_LISTS and following.text == "(":
            while tokens[position].text not in (")", ""):
                position += 1
        elif token.kind == "name" and following.text != "(" and token.text not in _WORDS:
            matchers: tuple[Matcher, ...] = ()
            if following.text == "{":
                matchers, position = _matchers(tokens, position + 1)
            yield Selector(token.text, matchers)
        elif token.text == "{":
            matchers, position = _matchers(tokens, position)
            yield Selector("", matchers)


def _matchers(tokens: list[_Token], position: int) -> tuple[tuple[Matcher, ...], int]:
    found = []
    while tokens[position].text not in ("}", ""):
        label, operator, value = tokens[position : position + 3]
        if label.kind == "name" and operator.text in _OPERATORS and value.kind == "string":
            found.append(Matcher(label.text, operator.text, value.text[1:-1]))
            position += 3
        else:
            position += 1
    return tuple(found), position + 1


def changed_meanings(expression: str) -> Iterator[str]:
    """What Prometheus 3 reads otherwise than Prometheus 2, one line each."""
    tokens = _tokens(expression)
    for token in tokens:
        if token.kind == "range" and ":" in token.text:
            length, _, step = token.text[1:-1].partition(":")
            seconds, step_seconds = _seconds(length), _seconds(step)
            if step_seconds and abs(seconds / step_seconds - round(seconds / step_seconds)) < 1e-9:
                yield (
                    f"{token.text} holds one sample more on Prometheus 2 than on 3: shorten the "
                    "range by a millisecond"
                )
    for counting in re.findall(r"\b(?:count|sum)_over_time\s*\([^()\[\]]*\[[^\]:]*\]", expression):
        yield f"{counting} counts samples: its left end is open on Prometheus 3"
    if re.search(r"\bholt_winters\s*\(", expression):
        yield "holt_winters has another name on Prometheus 3"
    for selector in selectors(expression):
        for matcher in selector.matchers:
            if "~" in matcher.operator and _PLAIN_DOT.search(matcher.value.replace(r"\.", "")):
                yield f"a dot in {matcher.value!r} matches a newline too on Prometheus 3"


def _seconds(duration: str) -> float:
    parts = re.findall(r"(\d+)(ms|[smhdwy])", duration)
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
