"""The parts of a PromQL expression. In: its text. Out: a tree, or None where it is not PromQL.

Every part has its line, which promql-parser does not know (docs/adr/0051-inference.md). promtool
judges the syntax: what is not understood here is left alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Optional

import msgspec

from nodevitals.commands.rules.expression import (
    AGGREGATIONS,
    LABEL_LISTS,
    Matcher,
    Token,
    matchers_at,
    prometheus_seconds,
    tokens,
    unquoted,
)

COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")
SETS = ("and", "or", "unless")
_PRECEDENCE = {
    "or": 1,
    **dict.fromkeys(("and", "unless"), 2),
    **dict.fromkeys(COMPARISONS, 3),
    **dict.fromkeys("+-", 4),
    **dict.fromkeys(("*", "/", "%", "atan2"), 5),
    "^": 6,
}
_POWER = _PRECEDENCE["^"]


class Part(msgspec.Struct, frozen=True):
    """One part; `kind` says what `text` is: a number, a string, a metric (`selector`), a function
    (`call`), an aggregation or an operator (`binary`).
    """

    kind: str
    text: str
    line: int
    inside: tuple[Part, ...] = ()
    matchers: tuple[Matcher, ...] = ()
    lists: Mapping[str, tuple[str, ...]] = {}
    """Labels by the word before them: `by`, `on`, `group_left`, …; `bool` has none."""
    window: str = ""
    """`[5m]` behind a selector or, with a colon, behind any expression."""


class _UnreadableError(Exception):
    pass


def parse(expression: str) -> Optional[Part]:
    """The whole expression; None where it cannot be read."""
    reader = _Reader(tokens(expression))
    with contextlib.suppress(_UnreadableError, RecursionError, ValueError):
        whole = reader.expression(1)
        return whole if reader.next.kind == "end" else None
    return None


def walk(part: Part) -> Iterator[Part]:
    """Every part of an expression, the outermost first."""
    yield part
    for inner in part.inside:
        yield from walk(inner)


class _Reader:
    def __init__(self, parsed: list[Token]) -> None:
        self._tokens = parsed
        self._position = 0

    @property
    def next(self) -> Token:
        return self._tokens[min(self._position, len(self._tokens) - 1)]

    def _take(self, *texts: str) -> Token:
        token = self.next
        if token.kind == "end" or (texts and token.text.lower() not in texts):
            raise _UnreadableError
        self._position += 1
        return token

    def _is(self, *texts: str) -> bool:
        return self.next.kind in ("name", "operator") and self.next.text.lower() in texts

    def expression(self, least: int) -> Part:
        left = self._signed()
        while self._is(*(text for text, level in _PRECEDENCE.items() if level >= least)):
            operator = self._take()
            text = operator.text.lower()
            lists: dict[str, tuple[str, ...]] = {}
            while self._is("bool", "on", "ignoring", "group_left", "group_right"):
                word = self._take().text.lower()
                lists[word] = self._labels() if self._is("(") and word != "bool" else ()
            level = _PRECEDENCE[text]
            right = self.expression(level if text == "^" else level + 1)
            left = Part("binary", text, operator.line, (left, right), lists=lists)
        return left

    def _signed(self) -> Part:
        if not self._is("+", "-"):
            return self._behind(self._primary())
        sign = self._take()
        operand = self.expression(_POWER)
        if operand.kind == "number":
            return Part("number", str(float(sign.text + "1") * float(operand.text)), sign.line)
        return operand if sign.text == "+" else Part("call", "-", sign.line, (operand,))

    def _primary(self) -> Part:
        token = self._take()
        text = token.text.lower()
        if token.kind == "string":
            return Part("string", unquoted(token.text), token.line)
        if token.kind == "number" or (text in ("inf", "nan") and not self._is("{", "(")):
            return Part("number", str(_number(text)), token.line)
        if token.text == "(":
            inner = self.expression(1)
            self._take(")")
            return inner
        if text in AGGREGATIONS and self._is("(", "by", "without"):
            return self._aggregation(token)
        if token.kind == "name" and self._is("("):
            return Part("call", token.text, token.line, self._arguments())
        if token.kind == "name" and text not in (*_PRECEDENCE, *LABEL_LISTS, "bool", "offset"):
            return Part("selector", token.text, token.line, matchers=self._matchers())
        if token.text == "{":
            self._position -= 1
            return Part("selector", "", token.line, matchers=self._matchers())
        raise _UnreadableError

    def _matchers(self) -> tuple[Matcher, ...]:
        if not self._is("{"):
            return ()
        found, self._position = matchers_at(self._tokens, self._position + 1)
        return found

    def _aggregation(self, token: Token) -> Part:
        lists = self._grouping()
        inside = self._arguments()
        lists = lists or self._grouping()
        return Part("aggregation", token.text.lower(), token.line, inside, lists=lists)

    def _grouping(self) -> dict[str, tuple[str, ...]]:
        return {self._take().text.lower(): self._labels()} if self._is("by", "without") else {}

    def _labels(self) -> tuple[str, ...]:
        self._take("(")
        labels = []
        while not self._is(")"):
            labels.append(unquoted(self._take().text))
            if not self._is(")"):
                self._take(",")
        self._take(")")
        return tuple(labels)

    def _arguments(self) -> tuple[Part, ...]:
        self._take("(")
        arguments = []
        while not self._is(")"):
            arguments.append(self.expression(1))
            if not self._is(")"):
                self._take(",")
        self._take(")")
        return tuple(arguments)

    def _behind(self, part: Part) -> Part:
        """The part with the window, `offset` and `@` behind it; a time changes nothing here."""
        while self.next.kind == "range" or self._is("offset", "@"):
            token = self._take()
            if token.kind == "range":
                part = msgspec.structs.replace(part, window=token.text)
                continue
            if self._is("+", "-"):
                self._take()
            if self._take().text in ("start", "end"):
                self._arguments()
        return part


def _number(text: str) -> float:
    if text.startswith("0x"):
        return float(int(text, 16))
    return prometheus_seconds(text) if text[-1] in "smhdwy" else float(text)
