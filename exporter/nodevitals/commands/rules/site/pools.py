"""Thresholds of the nodes of a pool: an expression in, the same with the pools' values out.

`LEFT > on () group_left () nodevitals:threshold{job="", threshold="x"}` compares every node with
one value. With pools, a node that has a value of its own is compared with that, and every other
series with the value for all: a node without `nodevitals_node_info`, or a shared filesystem, keeps
its alert.
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
        found = (
            comparison for comparison in _comparisons(expression) if comparison.operator >= position
        )
        one = next((each for each in found if each.threshold in thresholds), None)
        if one is None:
            return expression
        new = _with_pool(expression, one)
        position = one.left + len(new)
        expression = expression[: one.left] + new + expression[one.end :]


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
    """Why a threshold cannot differ by pool; '' where it can: every use of it compares a value of
    a node, as instance.
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
        found = [
            comparison
            for comparison in _comparisons(rule.expression)
            if comparison.threshold == threshold
        ]
        lefts = [rule.expression[one.left : one.operator] for one in found]
        if len(found) < uses or not all(_has_instance(left, rules, ()) for left in lefts):
            return (
                f"{rule.labels.get('fault', rule.name)} compares it with a value of more than one "
                "node: it cannot differ by pool, set it in thresholds"
            )
        compared += uses
    return "" if compared else "no rule compares with it"


def _comparisons(expression: str) -> Iterator[_Comparison]:
    found = tokens(expression)
    for index, token in enumerate(found):
        if token.kind != "operator" or token.text not in _COMPARISONS:
            continue
        after = index + (2 if found[index + 1].text == "bool" else 1)
        text = "".join(one.text for one in found[after : after + _TAIL_TOKENS])
        match = _TAIL.match(text)
        if match:
            last = next(at for at in range(after, len(found)) if found[at].text == "}")
            start = found[_left_operand(found, index)].start
            yield _Comparison(
                match[2], start, token.start, found[after].start, found[last].start + 1
            )


def _left_operand(found: Sequence[Token], index: int) -> int:
    """Where the left operand of a comparison begins: and, or and unless bind less than it."""
    depth = 0
    for at in range(index - 1, -1, -1):
        text, kind = found[at].text, found[at].kind
        if kind == "operator" and text in (")", "}"):
            depth += 1
        elif kind == "operator" and text in ("(", "{", ",") and depth == 0:
            return at + 1
        elif kind == "operator" and text in ("(", "{"):
            depth -= 1
        elif kind == "name" and text in ("and", "or", "unless") and depth == 0:
            return _after_matching(found, at + 1)
    return 0


def _after_matching(found: Sequence[Token], at: int) -> int:
    """The token after an `on (…)` or `ignoring (…)`, if there is one."""
    if found[at].text not in ("on", "ignoring"):
        return at
    return next(each for each in range(at, len(found)) if found[each].text == ")") + 1


def _has_instance(expression: str, rules: Sequence[Rule], within: tuple[str, ...]) -> bool:
    """Whether series of this expression have the label instance. A recorded name has it where one
    of its rules does: the other series keep the value for all.
    """
    found = tokens(expression)
    for at, token in enumerate(found):
        if token.text not in ("by", "without") or token.kind != "name":
            continue
        end = next(each for each in range(at, len(found)) if found[each].text in (")", ""))
        labels = [one.text for one in found[at:end]]
        if ("instance" in labels) != (token.text == "by"):
            return False
    for name in {selector.name for selector in selectors(expression)} - set(within):
        recorded = [rule.expression for rule in rules if rule.name == name and not rule.is_alert]
        if recorded and not any(_has_instance(rule, rules, (*within, name)) for rule in recorded):
            return False
    return True
