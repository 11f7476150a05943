"""The metrics that a PromQL expression reads. In: its text. Out: its selectors.

This is no parser: it finds the names, label matchers and label lists that the checks need. promtool
checks the syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<string>"(?:\\[\s\S]|[^"\\])*(?:"|\\?\Z)|'(?:\\[\s\S]|[^'\\])*(?:'|\\?\Z)|`[^`]*`)
      | (?P<range>\[[^\[\]]*\])
      | (?P<number>0x[0-9a-fA-F]+|\d[\d.]*(?:[eE][+-]?\d+)?(?:ms|[smhdwy])?(?:\d+(?:ms|[smhdwy]))*)
      | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<operator>=~|!~|!=|==|<=|>=|[-+*/%^<>=@(){},])""",
    re.VERBOSE,
)
LABEL_LISTS = ("by", "without", "on", "ignoring", "group_left", "group_right")
AGGREGATIONS = (
    *("sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values"),
    *("bottomk", "topk", "quantile", "limitk", "limit_ratio"),
)
WORDS = (*LABEL_LISTS, *AGGREGATIONS, "and", "or", "unless", "bool", "offset", "atan2")
_OPERATORS = ("=", "!=", "=~", "!~")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_DURATION = re.compile(r"(?:[0-9]+(?:ms|[smhdwy]))+|0")
_DURATION_PART = re.compile(r"([0-9]{1,15})(ms|[smhdwy])")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Matcher(msgspec.Struct, frozen=True):
    """`label operator "value"`."""

    label: str
    operator: str
    value: str


class Selector(msgspec.Struct, frozen=True):
    """A metric's name ('' where it has matchers only), its matchers, its line (0: the first)."""

    name: str
    matchers: tuple[Matcher, ...]
    line: int = 0


class Token(msgspec.Struct, frozen=True):
    """One token: its kind (a group of the pattern, or `end`), its text, its line (0: the first),
    the index of its first character.
    """

    kind: str
    text: str
    line: int
    start: int = 0


def tokens(expression: str) -> list[Token]:
    """The tokens of an expression without its comments; those of the kind `end` close it."""
    parsed = []
    line = counted = 0
    for match in _TOKEN.finditer(expression):
        kind = str(match.lastgroup)
        line += expression.count("\n", counted, match.start())
        counted = match.start()
        if kind != "comment":
            parsed.append(Token(kind, match[0], line, match.start()))
    # As many as a label matcher has tokens, so that a truncated expression needs no special case.
    return [*parsed, *[Token("end", "", 0)] * 3]


def selectors(expression: str) -> Iterator[Selector]:
    """Every selector of an expression."""
    parsed = tokens(expression)
    position = 0
    while position < len(parsed):
        token, following = parsed[position], parsed[min(position + 1, len(parsed) - 1)]
        position += 1
        if token.kind == "name" and token.text in LABEL_LISTS and following.text == "(":
            while parsed[position].text not in (")", ""):
                position += 1
        elif token.kind == "name" and following.text != "(" and token.text not in WORDS:
            matchers: tuple[Matcher, ...] = ()
            if following.text == "{":
                matchers, position = matchers_at(parsed, position + 1)
            yield Selector(token.text, matchers, token.line)
        elif token.text == "{":
            matchers, position = matchers_at(parsed, position)
            yield Selector("", matchers, token.line)


def matchers_at(parsed: list[Token], position: int) -> tuple[tuple[Matcher, ...], int]:
    """The matchers from a position within braces on, and the position behind them."""
    matchers = []
    while parsed[position].text not in ("}", ""):
        label, operator, value = parsed[position : position + 3]
        if label.kind == "name" and operator.text in _OPERATORS and value.kind == "string":
            matchers.append(Matcher(label.text, operator.text, value.text[1:-1]))
            position += 3
        else:
            position += 1
    return tuple(matchers), position + 1


def unquoted(text: str) -> str:
    """The value of a string in quotes, or the text itself."""
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "\"'`":
        return text
    if text[0] == "`":
        return text[1:-1]
    return _ESCAPE.sub(lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), text[1:-1])


def prometheus_seconds(duration: str) -> float:
    """Seconds of `30s`, `1h30m` or `0`. Raises ValueError."""
    if not _DURATION.fullmatch(duration):
        raise ValueError(f"{duration!r} is not a duration: write it like 30s or 1h30m")
    return sum(int(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(duration))
