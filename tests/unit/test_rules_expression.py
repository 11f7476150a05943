"""What `nodevitals rules check` reads from a PromQL expression."""

from __future__ import annotations

from collections import Counter

import promql_parser
import pytest

from nodevitals.commands.rules.check_expressions import changed_meanings
from nodevitals.commands.rules.expression import Matcher, Selector, selectors, unquoted
from nodevitals.commands.rules.site.pack import read_pack
from testbed import promql
from testbed.node import ROOT


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("up", [Selector("up", ())]),
        ('up{job="x"} == 0', [Selector("up", (Matcher("job", "=", "x"),))]),
        (
            'sum by (a, b) (rate(m_total{a=~"x|y", b!="}"}[5m])) > on () group_left () t:x',
            [
                Selector("m_total", (Matcher("a", "=~", "x|y"), Matcher("b", "!=", "}"))),
                Selector("t:x", ()),
            ],
        ),
        ('{__name__="m"}', [Selector("", (Matcher("__name__", "=", "m"),))]),
        ('label_replace(m, "a", "$1", "b", "(.+)") # not n', [Selector("m", ())]),
        (
            "topk by (c) (1, m) and on (c) n unless ignoring (d) o",
            [Selector("m", ()), Selector("n", ()), Selector("o", ())],
        ),
        ("vector(1) + 0x1f + 1e9 + 1h30m", []),
        ("m offset 5m @ end()", [Selector("m", ())]),
        ("m\n  # a comment\n  + n", [Selector("m", (), 0), Selector("n", (), 2)]),
        ("m{a", [Selector("m", ())]),
        ("sum by (a", []),
    ],
)
def test_selectors(expression: str, found: list[Selector]) -> None:
    assert list(selectors(expression)) == found


_OPERATORS = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
Read = tuple[str, frozenset[tuple[str, str, str]]]


def by_tokens(expression: str) -> Counter[Read]:
    return Counter(
        (
            read.name,
            frozenset((m.label, m.operator, unquoted(f'"{m.value}"')) for m in read.matchers),
        )
        for read in selectors(expression)
    )


def by_parser(expression: str) -> Counter[Read]:
    return Counter(
        (read.name or "", frozenset(map(matcher, read.matchers.matchers)))
        for read in promql.selectors(expression)
    )


def matcher(found: promql_parser.Matcher) -> tuple[str, str, str]:
    return found.name, _OPERATORS[str(found.op).rpartition(".")[2]], found.value


def test_each_selector_of_the_shipped_rules_is_what_promql_parser_reads() -> None:
    expressions = [rule.expression for rule in read_pack(ROOT / "rules").rules]
    assert len(expressions) > 100
    for expression in expressions:
        assert by_tokens(expression) == by_parser(expression), expression


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("count_over_time((m > 1)[10m:1m])", "one sample more on Prometheus 2"),
        ("count_over_time((m > 1)[9m59s999ms:1m])", ""),
        ("sum_over_time(m[10m])", "left end of a range is open"),
        ("increase(m[10m])", ""),
        ("holt_winters(m[10m], 0.5, 0.5)", "another name"),
        ('m{a=~"x.y"}', "a dot in 'x.y'"),
        ('m{a=~"x.+|y.*|z\\\\.q"}', ""),
        ('m{a=~"|x[.]y"}', ""),
    ],
)
def test_changed_meanings_on_prometheus_3(expression: str, words: str) -> None:
    found = "; ".join(text for _, text in changed_meanings(expression))
    assert (words in found) if words else found == ""


def test_a_changed_meaning_has_its_line() -> None:
    expression = "m\n  + sum_over_time(m[5m])\n  + sum_over_time((m)[5m:1m])"
    assert sorted(line for line, _ in changed_meanings(expression)) == [1, 2]
