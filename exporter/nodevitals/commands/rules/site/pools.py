"""Inserts the thresholds of pools into an expression.

`LEFT > on () group_left () nodevitals:threshold{job="", threshold="x"}` compares every node with
one value. With pools, a node of a pool is compared with the pool's value, and every other series
with the common value: a node without `nodevitals_node_info`, or a shared filesystem, keeps its
alert.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from nodevitals.commands.rules.expression import Token, selectors, tokens
from nodevitals.commands.rules.rule_files import Rule
from nodevitals.commands.rules.site.pack import THRESHOLD

POOL_THRESHOLD = "nodevitals:pool_threshold"
NODE_DOMAINS = "nodevitals:node_domains"
_COMPARISONS = (">", "<", ">=", "<=", "==", "!=")
_TAIL = re.compile(r"on\(\)(group_left\(\))?nodevitals:threshold\{job=\"\",threshold=\"(\w+)\",?\}")
_TAIL_TOKENS = 17
"""Number of tokens from `on` to the last brace, with a comma in the braces."""


class _Comparison(NamedTuple):
    """A comparison with a threshold; `left`, `operator` and `end` are offsets in the expression."""

    threshold: str
    left: int
    operator: int
    tail: int
    end: int


def with_pools(expression: str, thresholds: Collection[str]) -> str:
    """The expression with the values of pools in the comparisons with these thresholds."""
    position = 0
    while True:
        comparisons = (
            comparison for comparison in _comparisons(expression) if comparison.operator >= position
        )
        comparison = next(
            (comparison for comparison in comparisons if comparison.threshold in thresholds), None
        )
        if comparison is None:
            return expression
        new = _with_pool(expression, comparison)
        position = comparison.left + len(new)
        expression = expression[: comparison.left] + new + expression[comparison.end :]


def _with_pool(expression: str, comparison: _Comparison) -> str:
    left = expression[comparison.left : comparison.operator].rstrip()
    operator = expression[comparison.operator : comparison.tail].strip()
    tail = expression[comparison.tail : comparison.end]
    own = f'{POOL_THRESHOLD}{{job="", threshold="{comparison.threshold}"}}'
    return (
        f"(\n{left}\n{operator} on (cluster, instance) group_left () {own}\n"
        f"or\n{left}\n{operator} {tail}\nunless on (cluster, instance) {own}\n)"
    )


def pool_problem(threshold: str, rules: Sequence[Rule]) -> str:
    """Why a threshold cannot differ by pool; '' where it can: every expression that uses it must
    compare series with the label instance.
    """
    compared = 0
    for rule in rules:
        uses = sum(
            selector.name == THRESHOLD
            and any(matcher.value == threshold for matcher in selector.matchers)
            for selector in selectors(rule.expression)
        )
        absent = rf'absent\(\s*{THRESHOLD}\{{job="", threshold="{threshold}"'
        uses -= len(re.findall(absent, rule.expression))
        if not uses:
            continue
        comparisons = [
            comparison
            for comparison in _comparisons(rule.expression)
            if comparison.threshold == threshold
        ]
        lefts = [
            rule.expression[comparison.left : comparison.operator] for comparison in comparisons
        ]
        if len(comparisons) < uses or not all(_has_instance(left, rules, ()) for left in lefts):
            return (
                f"{rule.labels.get('fault', rule.name)} compares it with a value of more than one "
                "node: it cannot differ by pool, set it in thresholds"
            )
        compared += uses
    return "" if compared else "no rule compares with it"


def _comparisons(expression: str) -> Iterator[_Comparison]:
    parsed = tokens(expression)
    for index, token in enumerate(parsed):
        if token.kind != "operator" or token.text not in _COMPARISONS:
            continue
        after = index + (2 if parsed[index + 1].text == "bool" else 1)
        text = "".join(following.text for following in parsed[after : after + _TAIL_TOKENS])
        match = _TAIL.match(text)
        if match:
            last = next(at for at in range(after, len(parsed)) if parsed[at].text == "}")
            start = parsed[_left_operand(parsed, index)].start
            yield _Comparison(
                match[2], start, token.start, parsed[after].start, parsed[last].start + 1
            )


def _left_operand(parsed: Sequence[Token], index: int) -> int:
    """The index at which the left operand of a comparison begins; and, or and unless end it."""
    depth = 0
    for at in range(index - 1, -1, -1):
        text, kind = parsed[at].text, parsed[at].kind
        if kind == "operator" and text in (")", "}"):
            depth += 1
        elif kind == "operator" and text in ("(", "{", ",") and depth == 0:
            return at + 1
        elif kind == "operator" and text in ("(", "{"):
            depth -= 1
        elif kind == "name" and text in ("and", "or", "unless") and depth == 0:
            return _after_matching(parsed, at + 1)
    return 0


def _after_matching(parsed: Sequence[Token], at: int) -> int:
    """The token after an `on (…)` or `ignoring (…)`, if there is one."""
    if parsed[at].text not in ("on", "ignoring"):
        return at
    return next(index for index in range(at, len(parsed)) if parsed[index].text == ")") + 1


def _has_instance(expression: str, rules: Sequence[Rule], within: tuple[str, ...]) -> bool:
    """Whether series of this expression have the label instance. A recorded series has it where one
    of its rules has: other series are compared with the common value.
    """
    parsed = tokens(expression)
    for at, token in enumerate(parsed):
        if token.text not in ("by", "without") or token.kind != "name":
            continue
        end = next(index for index in range(at, len(parsed)) if parsed[index].text in (")", ""))
        labels = [part.text for part in parsed[at:end]]
        if ("instance" in labels) != (token.text == "by"):
            return False
    for name in {selector.name for selector in selectors(expression)} - set(within):
        recorded = [rule.expression for rule in rules if rule.name == name and not rule.is_alert]
        if recorded and not any(_has_instance(rule, rules, (*within, name)) for rule in recorded):
            return False
    return True
