"""Where a PromQL expression reads series: tokens in; each selector with its place out."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from nodevitals.commands.rules.backtest.matching import LabelMatcher, unquoted
from nodevitals.commands.rules.expression import LABEL_LISTS, WORDS, Token, tokens

_NOT_METRICS = ("inf", "nan")


class Reference(msgspec.Struct, frozen=True):
    """A selector with its range ('' for none) and its modifiers (`offset 5m`, `@ end ( )`).

    It is the tokens from `first` to before `after`.
    """

    name: str
    matchers: tuple[LabelMatcher, ...]
    first: int
    after: int
    selector: str
    range: str
    modifiers: str


def references(expression: str) -> tuple[list[str], list[Reference]]:
    """The tokens of an expression as texts, without comments, and its selectors."""
    texts, found = _read(expression)
    return [*texts], [*found]


@lru_cache(maxsize=2048)
def _read(expression: str) -> tuple[list[str], list[Reference]]:
    found = tokens(expression)
    texts = [token.text for token in found if token.kind != "end"]
    references: list[Reference] = []
    position = 0
    while position < len(texts):
        token, following = found[position], found[position + 1].text
        if token.kind == "name" and token.text in LABEL_LISTS and following == "(":
            position = texts.index(")", position)
        elif _is_metric(token, following) or token.text == "{":
            reference = _reference(found, texts, position)
            references.append(reference)
            position = reference.after - 1
        position += 1
    return texts, references


def _is_metric(token: Token, following: str) -> bool:
    word = token.text
    return (
        token.kind == "name"
        and following != "("
        and word not in WORDS
        and word.lower() not in _NOT_METRICS
    )


def _reference(found: list[Token], texts: list[str], first: int) -> Reference:
    name = texts[first] if found[first].kind == "name" else ""
    after = first + bool(name)
    matchers: list[LabelMatcher] = []
    if texts[after : after + 1] == ["{"]:
        close = texts.index("}", after)
        for index in range(after + 1, close - 1):
            if found[index].kind == "name" and found[index + 2].kind == "string":
                value = unquoted(texts[index + 2])
                matchers.append(LabelMatcher(texts[index], texts[index + 1], value))
        after = close + 1
    selector = " ".join(texts[first:after])
    length = ""
    if found[after].kind == "range":
        length, after = texts[after], after + 1
    start = after
    while texts[after : after + 1] in (["offset"], ["@"]):
        after += 2 + (texts[after + 1] == "-")
        if texts[after : after + 1] == ["("]:
            after += 2
    modifiers = " ".join(texts[start:after])
    return Reference(name, tuple(matchers), first, after, selector, length, modifiers)


def enclosing_call(texts: list[str], reference: Reference) -> tuple[int, int] | None:
    """The tokens (first, after) of the function call that a selector is an argument of."""
    depth, first = 0, reference.first - 1
    while first >= 0 and not (depth == 0 and texts[first] == "("):
        depth += {")": 1, "(": -1}.get(texts[first], 0)
        first -= 1
    if first < 1 or not texts[first - 1].isidentifier() or texts[first - 1] in WORDS:
        return None
    depth, after = 1, first + 1
    while depth:
        depth += {"(": 1, ")": -1}.get(texts[after], 0)
        after += 1
    return first - 1, after
