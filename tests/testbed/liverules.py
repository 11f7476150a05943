"""The rules that matter to a test of rules: the others only cost evaluations.

In: documents of rules, and one test of a test file. Out: the same documents without each rule that
the test does not ask about, and without each rule that reads nothing: none of its selectors matches
an input series or the output of another rule. A rule that returns something where there is no
series (`absent`, `vector`, …) does not need one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodevitals.commands.rules.expression import Matcher, Selector, selectors, tokens

_METRIC = re.compile(r"\bnodevitals[:_][a-z0-9_:]+")
Documents = Mapping[str, dict[str, Any]]
# These return something where there is no series; the last ones do so without an argument.
_FROM_NOTHING = {"absent", "absent_over_time", "vector", "scalar"} | {
    *("minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month"),
    *("month", "year"),
}


class Known:
    """Series of which all labels are known, or (output of a rule) only those that the rule sets."""

    def __init__(self, labels: Mapping[str, str], *, complete: bool) -> None:
        self.labels, self.complete = labels, complete

    def matches(self, selector: Selector) -> bool:
        """Whether the selector may select a series of this kind."""
        if selector.name and selector.name != self.labels["__name__"]:
            return False
        return all(map(self._agrees, selector.matchers))

    def _agrees(self, matcher: Matcher) -> bool:
        if matcher.label not in self.labels and not self.complete:
            return True
        value, wanted = self.labels.get(matcher.label, ""), matcher.value.replace("\\\\", "\\")
        if matcher.operator in ("=", "!="):
            return (value == wanted) == (matcher.operator == "=")
        return (re.fullmatch(wanted, value) is not None) == (matcher.operator == "=~")


def _queries(annotations: Iterable[str]) -> Iterator[Selector]:
    """What the texts of an alert query, by name only: their labels are those of the alert."""
    for text in annotations:
        if "query" in text:
            yield from (Selector(name, ()) for name in _METRIC.findall(text))


class Read:
    """What a rule reads and writes."""

    def __init__(self, rule: Mapping[str, Any]) -> None:
        expression = str(rule["expr"])
        self.selectors = list(selectors(expression))
        words = {token.text for token in tokens(expression) if token.kind == "name"}
        self.asks = [*self.selectors, *_queries(rule.get("annotations", {}).values())]
        self.from_nothing = not self.selectors or bool(words & _FROM_NOTHING)
        self.alert = rule.get("alert", "")
        labels = {k: str(v) for k, v in rule.get("labels", {}).items() if "{{" not in str(v)}
        names = [rule["record"]] if "record" in rule else ["ALERTS", "ALERTS_FOR_STATE"]
        if self.alert:
            labels["alertname"] = self.alert
        self.outputs = [Known({**labels, "__name__": name}, complete=False) for name in names]

    def writes_one_of(self, wanted: Iterable[Selector]) -> bool:
        """Whether one of the selectors may select what the rule writes."""
        return any(output.matches(one) for one in wanted for output in self.outputs)

    def has_input(self, known: Iterable[Known]) -> bool:
        """Whether the rule may have an output where there are these series."""
        return self.from_nothing or any(
            one.matches(read) for one in known for read in self.selectors
        )


def live_rules(documents: Documents, test: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the documents with those rules only that matter to this test."""
    rules = {id(rule): Read(rule) for rule in _rules(documents)}
    live = _with_input(_asked_for(rules, test), test)
    return {
        name: {"groups": list(_kept(document["groups"], live))}
        for name, document in documents.items()
    }


def _rules(documents: Documents) -> Iterator[dict[str, Any]]:
    for document in documents.values():
        for group in document["groups"]:
            yield from group["rules"]


def _asked_for(rules: dict[int, Read], test: Mapping[str, Any]) -> dict[int, Read]:
    """The rules that an expectation names, and what they read, and so on."""
    alerts = {case["alertname"] for case in test.get("alert_rule_test", ())}
    wanted = [one for case in test.get("promql_expr_test", ()) for one in selectors(case["expr"])]
    asked: dict[int, Read] = {}
    while found := {
        key: rule
        for key, rule in rules.items()
        if key not in asked and (rule.alert in alerts or rule.writes_one_of(wanted))
    }:
        asked.update(found)
        wanted = [one for rule in found.values() for one in rule.asks]
    return asked


def _with_input(rules: dict[int, Read], test: Mapping[str, Any]) -> set[int]:
    known = [_input(series["series"]) for series in test["input_series"]]
    live: set[int] = set()
    while found := {
        key: rule for key, rule in rules.items() if key not in live and rule.has_input(known)
    }:
        live.update(found)
        known = [output for rule in found.values() for output in rule.outputs]
    return live


def _input(series: str) -> Known:
    [selector] = selectors(series)
    labels = {one.label: one.value for one in selector.matchers}
    return Known({**labels, "__name__": selector.name}, complete=True)


def _kept(groups: list[dict[str, Any]], live: set[int]) -> Iterator[dict[str, Any]]:
    for group in groups:
        rules = [rule for rule in group["rules"] if id(rule) in live]
        if rules:
            yield {**group, "rules": rules}
