"""The tree of a PromQL expression, held against promql-parser."""

from __future__ import annotations

from typing import Any

import pytest
from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

from nodevitals.commands.rules.promql.syntax import Part, parse
from nodevitals.commands.rules.site.pack import read_pack
from testbed import promql
from testbed.node import ROOT


def own(part: Part | None) -> Any:
    """A tree as nested tuples."""
    assert part is not None
    inside = [own(inner) for inner in part.inside]
    if part.kind == "number":
        return float(part.text)
    if part.kind == "string":
        return part.text
    if part.kind == "selector":
        return ("selector", part.text)
    grouping = [(word, part.lists[word]) for word in ("by", "without") if part.lists.get(word)]
    matching = [(word, part.lists[word]) for word in ("on", "ignoring") if word in part.lists]
    if part.kind == "binary":
        return (part.text, *inside, *matching)
    return (part.text, *inside, *grouping)


def theirs(node: Any) -> Any:
    """The same of promql-parser's tree."""
    if isinstance(node, ParenExpr | SubqueryExpr):
        return theirs(node.expr)
    if isinstance(node, MatrixSelector):
        return theirs(node.vector_selector)
    if isinstance(node, VectorSelector):
        return ("selector", node.name or "")
    if isinstance(node, NumberLiteral | StringLiteral):
        return node.val
    if isinstance(node, UnaryExpr):
        inner = theirs(node.expr)
        return -inner if isinstance(inner, float) else ("-", inner)
    if isinstance(node, Call):
        return (node.func.name, *map(theirs, node.args))
    if isinstance(node, AggregateExpr):
        inside = [theirs(one) for one in (node.param, node.expr) if one is not None]
        modifier = node.modifier
        word = "without" if modifier and modifier.type == AggModifierType.Without else "by"
        grouping = [(word, tuple(modifier.labels))] if modifier and modifier.labels else []
        return (str(node.op), *inside, *grouping)
    assert isinstance(node, BinaryExpr)
    found = node.modifier.matching if node.modifier else None
    include = found and "Include" in str(found.type)
    matching = [("on" if include else "ignoring", tuple(found.labels))] if found else []
    return (str(node.op), theirs(node.lhs), theirs(node.rhs), *matching)


def test_each_shipped_rule_has_the_tree_of_promql_parser() -> None:
    expressions = [rule.expression for rule in read_pack(ROOT / "rules").rules]
    assert len(expressions) > 500
    for expression in expressions:
        assert own(parse(expression)) == theirs(promql.parsed(expression)), expression


@pytest.mark.parametrize(
    "expression",
    [
        "a + b * c ^ d ^ e - f",
        "-a ^ 2 + 3",
        "a or b and c unless d > bool 1 == 2",
        "sum by (x) (a) / on (x) group_left (y) sum(b) by (x)",
        "max_over_time((a > 1)[1h:5m] @ end() offset 1d)",
        'quantile(0.5, rate(a{b="c"}[5m])) - 0x1f',
        "topk without (y,) (3, a)",
    ],
)
def test_precedence_and_modifiers_are_those_of_promql_parser(expression: str) -> None:
    assert own(parse(expression)) == theirs(promql.parsed(expression))


@pytest.mark.parametrize("expression", ["", "a +", "a default 0", "sum by (a", "a b", "(a"])
def test_what_is_no_promql_has_no_tree(expression: str) -> None:
    assert parse(expression) is None


def test_every_part_has_its_line() -> None:
    tree = parse("a\n  # a comment\n  and on (x)\n  b > 1")
    assert tree is not None
    assert (tree.text, tree.line, tree.inside[1].text, tree.inside[1].line) == ("and", 2, ">", 3)
