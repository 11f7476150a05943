"""Alertmanager's inhibition: firing alerts in, what each of them mutes out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from nodevitals.commands.rules.backtest.matching import all_match
from nodevitals.commands.rules.backtest.routing import Inhibition

_Key = tuple[str, ...]


class Inhibitor:
    """Holds the sources that fire now, by rule and by the values of the rule's `equal` labels."""

    def __init__(self, rules: tuple[Inhibition, ...], alerts: list[Mapping[str, str]]) -> None:
        """`alerts` are the labels of every alert; elsewhere an alert is its index in them."""
        self._alerts = alerts
        self._sources: dict[int, list[tuple[int, _Key, bool]]] = {}
        self._targets: dict[int, list[tuple[int, _Key, bool]]] = {}
        for number, labels in enumerate(alerts):
            as_source, as_target = [], []
            for index, rule in enumerate(rules):
                source, target = all_match(rule.source, labels), all_match(rule.target, labels)
                key = tuple(labels.get(name, "") for name in rule.equal)
                if source:
                    as_source.append((index, key, target))
                if target:
                    as_target.append((index, key, source))
            self._sources[number], self._targets[number] = as_source, as_target
        self._firing: defaultdict[tuple[int, _Key], dict[int, bool]] = defaultdict(dict)
        self.changes = 0
        """Number of changes of the sources so far: while it stays, so does what is muted."""

    def update(self, alert: int, firing: bool) -> None:
        """An alert fires or is resolved."""
        for rule, key, also_target in self._sources[alert]:
            self.changes += 1
            if firing:
                self._firing[rule, key][alert] = also_target
            else:
                self._firing[rule, key].pop(alert, None)

    def muted_by(self, alert: int) -> int | None:
        """The alert that mutes this one, or None.

        An alert that matches both sides of a rule is not muted by another one that does.
        """
        for rule, key, also_source in self._targets[alert]:
            for source, also_target in self._firing[rule, key].items():
                if not (also_source and also_target):
                    return source
        return None
