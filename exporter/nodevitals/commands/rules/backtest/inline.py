"""Recorded series replaced by their expressions: rules in, expressions over raw metrics out.

The server of a back-test has the agents' metrics but none of the recorded series.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nodevitals.commands.rules.backtest.matching import LabelMatcher
from nodevitals.commands.rules.backtest.references import Reference, enclosing_call, references
from nodevitals.commands.rules.backtest.rule_set import BacktestRule
from nodevitals.commands.terminal import FOUND_WRONG, CommandError

_MARK = "backtest_match"
# What does not count samples: a subquery may take fewer of them, which costs the server less.
_OF_ANY_SAMPLES = (
    *("last_over_time", "max_over_time", "min_over_time", "avg_over_time"),
    *("quantile_over_time", "present_over_time"),
)
_COARSE_SECONDS = 60.0
_ABSENCE = ("absent", "absent_over_time")


class Inliner:
    """Writes expressions without recorded names.

    `available` are the metrics that the server has; what a rule records from others is left out.
    """

    def __init__(self, rules: Sequence[BacktestRule], available: Collection[str]) -> None:
        self._available = available
        self._records: dict[str, list[BacktestRule]] = {}
        self._metrics: dict[str, set[str]] = {}
        self._is_read: dict[BacktestRule, bool] = {}
        self._texts: dict[BacktestRule, str] = {}
        for rule in rules:
            if not rule.is_alert:
                self._records.setdefault(rule.name, []).append(rule)

    def candidates(self, reference: Reference) -> list[BacktestRule]:
        """The rules that can record what a selector reads."""
        return [
            rule
            for rule in self._records.get(reference.name, ())
            if all(
                one.matches_value(rule.labels[one.label])
                for one in reference.matchers
                if one.label in rule.labels
            )
        ]

    def metrics(self, expression: str) -> set[str]:
        """The raw metrics that an expression reads, through recorded series as well."""
        if expression not in self._metrics:
            found: set[str] = set()
            left, seen = [expression], set[BacktestRule]()
            while left:
                for reference in references(left.pop())[1]:
                    rules = self.candidates(reference)
                    if ":" not in reference.name:  # exposed by agents, recorded from others
                        rules = [rule for rule in rules if self._is_available(rule)]
                    if not rules or reference.name in self._available:
                        found.add(reference.name)
                    left += [rule.expression for rule in rules if rule not in seen]
                    seen.update(rules)
            self._metrics[expression] = found - {""}
        return self._metrics[expression]

    def _is_available(self, rule: BacktestRule) -> bool:
        """Whether the server has a metric that a rule reads."""
        if rule not in self._is_read:
            self._is_read[rule] = False  # what reads itself
            read = self.metrics(rule.expression)
            self._is_read[rule] = any(name in self._available for name in read)
        return self._is_read[rule]

    def has_data(self, expression: str) -> bool:
        """Whether an expression can return anything on this server."""
        texts, _ = references(expression)
        read = self.metrics(expression)
        absence = any(text in _ABSENCE for text in texts)
        return absence or not read or any(name in self._available for name in read)

    def inlined(self, expression: str, within: tuple[BacktestRule, ...] = ()) -> str:
        """The expression with every recorded name replaced. Raises CommandError for a rule that
        reads itself.
        """
        texts, found = references(expression)
        for reference in reversed(found):
            call = enclosing_call(texts, reference) if reference.range else None
            coarse = call is not None and texts[call[0]] in _OF_ANY_SAMPLES
            text = self._replacement(reference, within, _COARSE_SECONDS if coarse else 0)
            if text is not None:
                texts[reference.first : reference.after] = [text]
        return " ".join(texts)

    def _replacement(
        self, reference: Reference, within: tuple[BacktestRule, ...], least_step: float
    ) -> str | None:
        rules = [one for one in self.candidates(reference) if self.has_data(one.expression)]
        if not rules:
            return None
        parts = [self._recorded(rule, reference.matchers, within) for rule in rules]
        if ":" not in reference.name and reference.name in self._available:
            parts.insert(0, reference.selector)
        text = f"( {' or '.join(parts)} )"
        interval = max(min(rule.interval for rule in rules), least_step)
        step = f"{round(interval * 1000)}ms"
        if reference.range:
            length, _, given = reference.range[1:-1].partition(":")
            return f"{text} [{length}:{given or step}] {reference.modifiers}"
        if reference.modifiers:
            return f"last_over_time ( {text} [{step}:{step}] {reference.modifiers} )"
        return text

    def _recorded(
        self,
        rule: BacktestRule,
        matchers: tuple[LabelMatcher, ...],
        within: tuple[BacktestRule, ...],
    ) -> str:
        """What one rule records, as far as the matchers let it through."""
        if rule in within:
            text = f"rule {rule.name} reads itself through {within[-1].name}"
            raise CommandError(text, FOUND_WRONG)
        if rule not in self._texts:
            self._texts[rule] = f"( {self.inlined(rule.expression, (*within, rule))} )"
        text = self._texts[rule]
        for label, value in rule.labels.items():
            text = _replaced(text, label, value)
        for matcher in matchers:
            if matcher.label not in rule.labels:
                text = f"( {_filtered(text, matcher)} )"
        return text


def _filtered(text: str, matcher: LabelMatcher) -> str:
    """An expression and a matcher: PromQL applies matchers to selectors only."""
    join = "unless" if matcher.operator.startswith("!") else "and"
    if "~" not in matcher.operator:
        value = _replaced("vector ( 1 )", matcher.label, matcher.value)
        return f"{text} {join} on ( {matcher.label} ) {value}"
    marked = (
        f'label_replace ( {text} , "{_MARK}" , "1" , "{matcher.label}" , {_quoted(matcher.value)} )'
    )
    kept = f"{marked} {join} on ( {_MARK} ) {_replaced('vector ( 1 )', _MARK, '1')}"
    return _replaced(kept, _MARK, "")


def _replaced(text: str, label: str, value: str) -> str:
    """An expression with a label set on every series."""
    return f'label_replace ( {text} , "{label}" , {_quoted(value.replace("$", "$$"))} , "" , "" )'


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
