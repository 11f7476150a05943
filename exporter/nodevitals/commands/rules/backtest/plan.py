"""Which part of the rules the server evaluates, and which part promtool: rules in, a plan out.

The server evaluates faults and everything that depends on raw metrics only: of a healthy fleet
nothing comes back. What depends on faults (alerts, the fleet layer) is promtool's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from nodevitals.commands.rules.backtest.inline import Inliner
from nodevitals.commands.rules.backtest.matching import LabelMatcher
from nodevitals.commands.rules.backtest.references import Reference, enclosing_call, references
from nodevitals.commands.rules.backtest.rule_set import BacktestRule

FAULT = "nodevitals:fault"
_STATES = ("ALERTS", "ALERTS_FOR_STATE")
_SYNTHETIC = "nodevitals:backtest"


class Source(msgspec.Struct, frozen=True):
    """An expression for the server; its series get a name and labels.

    `sparse`: it is empty while everything is well, so that it is evaluated over the whole span;
    others are evaluated only where something happens.
    """

    name: str
    labels: dict[str, str]
    expression: str
    sparse: bool


class LocalRule(msgspec.Struct, frozen=True):
    """A rule for promtool, which reads faults and the series of sources."""

    rule: BacktestRule
    expression: str


class Unevaluated(msgspec.Struct, frozen=True):
    """Metrics that a fault or an alert reads and the server does not have; the alerts affected."""

    rule: str
    metrics: tuple[str, ...]
    alerts: tuple[str, ...]
    whole: bool
    """No metric of the rule is there: it was not evaluated."""


class Plan(msgspec.Struct, frozen=True):
    """What the server evaluates, what promtool evaluates, and what neither can."""

    sources: tuple[Source, ...]
    local: tuple[LocalRule, ...]
    unevaluated: tuple[Unevaluated, ...]


class Planner:
    """Makes a plan for rules and the metrics that the server has."""

    def __init__(self, rules: Sequence[BacktestRule], available: Collection[str]) -> None:
        self._rules = rules
        self._available = available
        self._inliner = Inliner(rules, available)
        self._local: dict[BacktestRule, bool] = {}
        self._sources: dict[tuple[str, str], Source] = {}
        self._synthetic_names: dict[str, str] = {}
        self._rewritten: dict[BacktestRule, LocalRule] = {}

    def plan(self) -> Plan:
        """The plan."""
        for rule in self._rules:
            if rule.name == FAULT and not self._is_local(rule):
                self._add_source(FAULT, rule.labels, rule.expression, sparse=True)
        for rule in self._rules:
            if rule.is_alert or (rule.name == FAULT and self._is_local(rule)):
                self._add_local(rule)
        missing = tuple(
            found
            for rule in self._rules
            if rule.is_alert or rule.name == FAULT
            for found in self._unevaluated(rule)
        )
        return Plan(tuple(self._sources.values()), tuple(self._rewritten.values()), missing)

    def _is_local(self, rule: BacktestRule) -> bool:
        """Whether a rule depends on faults, as one of several, on alerts or on itself."""
        if rule not in self._local:
            self._local[rule] = True  # what reads itself
            self._local[rule] = any(
                one.name in _STATES
                or (one.name == FAULT and rule.name != FAULT)
                or any(map(self._is_local, self._inliner.candidates(one)))
                for one in references(rule.expression)[1]
            )
        return self._local[rule]

    def _is_constant(self, rule: BacktestRule) -> bool:
        """Whether a rule reads no metric, as thresholds: promtool evaluates it for nothing."""
        return not self._inliner.metrics(rule.expression)

    def _add_source(self, name: str, labels: dict[str, str], expression: str, sparse: bool) -> None:
        if self._inliner.has_data(expression):
            text = self._inliner.inlined(expression)
            source = Source(name, labels, text, sparse)
            self._sources.setdefault((name, f"{sorted(labels.items())} {text}"), source)

    def _add_local(self, rule: BacktestRule) -> None:
        """Add a rule for promtool after those that it reads."""
        if rule in self._rewritten:
            return
        _, found = references(rule.expression)
        is_free = rule.is_alert and not self._is_local(rule) and not self._is_constant(rule)
        self._rewritten[rule] = LocalRule(rule, "")
        expression = (
            self._synthetic(rule.expression, sparse=True)
            if is_free
            else self._rewrite(rule.expression)
        )
        if not is_free:
            for reference in found:
                for one in self._inliner.candidates(reference):
                    if self._is_local(one) or self._is_constant(one):
                        self._add_local(one)
        # To the end: dict keeps the order of insertion.
        self._rewritten.pop(rule)
        self._rewritten[rule] = LocalRule(rule, expression)

    def _synthetic(self, expression: str, sparse: bool) -> str:
        """A name for what the server returns for an expression, which may be nothing."""
        text = self._inliner.inlined(expression)
        name = self._synthetic_names.setdefault(text, f"{_SYNTHETIC}:{len(self._synthetic_names)}")
        self._add_source(name, {}, expression, sparse)
        return name

    def _rewrite(self, expression: str) -> str:
        """An expression for promtool: functions over ranges of raw metrics are the server's."""
        texts, found = references(expression)
        unchanged = len(texts)
        for reference in reversed(found):
            if reference.after > unchanged or self._stays(reference):
                continue
            call = enclosing_call(texts, reference) if reference.range else None
            if call is not None:
                first, after = call
                inner = " ".join(texts[first:after])
                if not any(map(self._stays, references(inner)[1])):
                    texts[first:after] = [self._synthetic(inner, sparse=False)]
                    unchanged = first
                    continue
            if reference.modifiers and not reference.range:
                inner = " ".join(texts[reference.first : reference.after])
                texts[reference.first : reference.after] = [self._synthetic(inner, sparse=False)]
                continue
            self._add_read(reference)
        return " ".join(texts)

    def _stays(self, reference: Reference) -> bool:
        """Whether promtool has what a selector reads: from its own rules, or as faults."""
        rules = self._inliner.candidates(reference)
        return reference.name in (FAULT, *_STATES) or (
            bool(rules)
            and ":" in reference.name
            and all(self._is_local(rule) or self._is_constant(rule) for rule in rules)
        )

    def _add_read(self, reference: Reference) -> None:
        """Add what a selector of promtool's reads as sources of the same name."""
        rules = self._inliner.candidates(reference)
        for rule in rules:
            if not self._is_local(rule) and not self._is_constant(rule):
                self._add_source(rule.name, rule.labels, rule.expression, sparse=False)
        if not rules or ":" not in reference.name:
            self._add_source(reference.name, {}, reference.selector, sparse=False)

    def _unevaluated(self, rule: BacktestRule) -> list[Unevaluated]:
        metrics = self._inliner.metrics(rule.expression) - {FAULT, *_STATES}
        if rule.is_alert and self._is_local(rule):
            return []
        missing = sorted(name for name in metrics if name not in self._available)
        if not missing:
            return []
        alerts = {rule.name} if rule.is_alert else self._alerts_of(rule)
        name = rule.name if rule.is_alert else rule.labels.get("fault", rule.name)
        whole = not self._inliner.has_data(rule.expression)
        return [Unevaluated(name, tuple(missing), tuple(sorted(alerts)), whole)]

    def _alerts_of(self, fault: BacktestRule) -> set[str]:
        """The alerts whose expressions name a fault."""
        return {
            rule.name
            for rule in self._rules
            if rule.is_alert
            for reference in references(rule.expression)[1]
            if _names_fault(reference.matchers) and fault in self._inliner.candidates(reference)
        }


def _names_fault(matchers: tuple[LabelMatcher, ...]) -> bool:
    return any(matcher.label == "fault" for matcher in matchers)
