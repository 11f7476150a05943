"""Recorded series written out, and the selectors of an expression."""

from __future__ import annotations

import pytest

from nodevitals.commands.rules.backtest.inline import Inliner
from nodevitals.commands.rules.backtest.plan import Planner
from nodevitals.commands.rules.backtest.references import enclosing_call, references
from nodevitals.commands.rules.backtest.rule_set import BacktestRule
from nodevitals.commands.terminal import CommandError


def record(name: str, expression: str, interval: float = 15, **labels: str) -> BacktestRule:
    return BacktestRule(name, False, expression, labels, 0, 0, interval)


def inlined(expression: str, *rules: BacktestRule, available: str = "a b c") -> str:
    return Inliner(rules, available.split()).inlined(expression)


def test_names_become_expressions_with_the_labels_of_their_rules() -> None:
    found = inlined("x:y > 1", record("x:y", "a + b", level="5$"))
    assert found == '( label_replace ( ( a + b ) , "level" , "5$$" , "" , "" ) ) > 1'


def test_rules_that_a_matcher_excludes_are_left_out() -> None:
    rules = (record("x:y", "a", k="1"), record("x:y", "b", k="2"), record("x:y", "c", k="2"))
    found = inlined('x:y{k="2"}', *rules)
    assert " a " not in found
    assert " b " in found
    assert " or " in found


@pytest.mark.parametrize(
    ("matcher", "expected"),
    [
        ('l="v"', '( a ) and on ( l ) label_replace ( vector ( 1 ) , "l" , "v" , "" , "" )'),
        ('l!=""', '( a ) unless on ( l ) label_replace ( vector ( 1 ) , "l" , "" , "" , "" )'),
    ],
)
def test_other_matchers_become_joins(matcher: str, expected: str) -> None:
    assert expected in inlined(f"x:y{{{matcher}}}", record("x:y", "a"))


def test_ranges_become_subqueries_at_the_interval_of_the_group() -> None:
    found = inlined("count_over_time(x:y[1h])", record("x:y", "a", interval=5))
    assert found == "count_over_time ( ( ( a ) ) [1h:5000ms]  )"


def test_functions_that_do_not_count_samples_take_fewer() -> None:
    found = inlined("quantile_over_time(0.5, x:y[1h])", record("x:y", "a", interval=5))
    assert found == "quantile_over_time ( 0.5 , ( ( a ) ) [1h:60000ms]  )"


def test_offsets_are_kept() -> None:
    found = inlined("x:y offset 1h", record("x:y", "a"))
    assert found == "last_over_time ( ( ( a ) ) [15000ms:15000ms] offset 1h )"


def test_a_name_that_is_also_exposed_is_both() -> None:
    rule = record("a", "b")
    assert inlined('a{k="v"} > 0', rule).startswith('( a { k = "v" } or ( ( b ) and on ( k )')
    assert inlined("a > 0", rule, available="a") == "a > 0"
    assert inlined("a > 0", rule, available="b") == "( ( b ) ) > 0"


def test_a_rule_that_reads_itself_is_an_error() -> None:
    with pytest.raises(CommandError, match="x:y reads itself"):
        inlined("x:y", record("x:y", "a or x:y"))


def test_selectors_are_found_with_ranges_and_modifiers() -> None:
    text = 'sum by (a) (rate(b{c=~"d|e"}[5m] offset -1h)) > on () group_left () x:y @ end() # f'
    texts, found = references(text)
    assert [(one.name, one.range, one.modifiers) for one in found] == [
        ("b", "[5m]", "offset - 1h"),
        ("x:y", "", "@ end ( )"),
    ]
    first, after = enclosing_call(texts, found[0]) or (0, 0)
    assert texts[first] == "rate"
    assert texts[after] == ")"


def test_functions_over_ranges_of_raw_metrics_are_the_servers() -> None:
    rules = (
        record("nodevitals:fault", "a == 0", fault="a"),
        record(
            "x:y",
            "group by (i) (last_over_time(b{k='v'}[1h]) + rate(c[5m])) and on (i) nodevitals:fault",
        ),
        BacktestRule("Any", True, "x:y > 0", {}, 0, 0, 15),
    )
    plan = Planner(rules, {"a", "b", "c"}).plan()
    assert [one.expression for one in plan.sources] == [
        "a == 0",
        "rate ( c [5m] )",
        "last_over_time ( b { k = 'v' } [1h] )",
    ]
    names = [one.name for one in plan.sources]
    assert plan.local[0].expression == (
        f"group by ( i ) ( {names[2]} + {names[1]} ) and on ( i ) nodevitals:fault"
    )


def test_faults_that_read_other_faults_are_the_servers_and_circles_are_local() -> None:
    rules = (
        record("nodevitals:fault", "a == 0", fault="first"),
        record("nodevitals:fault", 'b unless nodevitals:fault{fault="first"}', fault="second"),
        record("nodevitals:fault", 'nodevitals:fault{fault="third"} or c', fault="third"),
    )
    plan = Planner(rules, {"a", "b", "c"}).plan()
    assert [one.labels["fault"] for one in plan.sources if one.sparse] == ["first", "second"]
    assert [one.rule.labels["fault"] for one in plan.local] == ["third"]


def test_an_alert_without_data_does_not_read_what_stands_for_another() -> None:
    rules = [
        BacktestRule(name, True, f"{metric} > 0", {}, 0, 0, 15)
        for name, metric in (("Absent", "gone"), ("Lost", "lost"), ("Hot", "a"), ("Slow", "b"))
    ]
    plan = Planner(rules, {"a", "b"}).plan()
    read = {one.rule.name: one.expression for one in plan.local}
    sources = {one.name: one.expression for one in plan.sources}
    assert len(set(read.values())) == 4
    assert {sources.get(expression) for expression in read.values()} == {None, "a > 0", "b > 0"}
