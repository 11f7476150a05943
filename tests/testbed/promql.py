"""What is in PromQL: the series that an expression reads, and the labels that its result may have.

Labels are sets of names; None stands for any label, where a metric is not ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import promql_parser
import yaml
from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    MatrixSelector,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

from nodevitals.catalogue import all_families, hub_families
from nodevitals.probes.fabric.families import PUSHED

Labels = frozenset[str] | None
LabelsOf = Callable[[str], Labels]
# The grouping key of `fabric collective --push`.
_PUSHED = frozenset({"collective"})
# Of every scraped series; a label of the metric that the target also has gets a prefix.
TARGET = frozenset({"job", "instance", "cluster", "exported_job"})
# The labels of the configuration.
_ANY = ("nodevitals_node_info",)
# Made by Prometheus for each target; others have more labels there, which ours do not.
_SCRAPE = ("up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_body_size_bytes")
_VARIABLES = (
    (re.compile(r"\$(__rate_interval|__interval)\b|\$\{(__rate_interval|__interval)\}"), "5m"),
    (re.compile(r"\$__range_s\b|\$\{__range_s\}"), "3600"),
    (re.compile(r"\$__range\b|\$\{__range\}"), "1h"),
)


def parsed(expression: str) -> Any:
    """Return the expression of a panel or a rule as a tree; Grafana's durations get a value."""
    for variable, value in _VARIABLES:
        expression = variable.sub(value, expression)
    return promql_parser.parse(expression)


def walk(node: Any, parents: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield every part of an expression with the parts around it, the outermost first."""
    yield node, parents
    inside: list[Any] = []
    if isinstance(node, BinaryExpr):
        inside = [node.lhs, node.rhs]
    elif isinstance(node, Call):
        inside = list(node.args)
    elif isinstance(node, MatrixSelector):
        inside = [node.vector_selector]
    elif isinstance(node, AggregateExpr):
        inside = [one for one in (node.expr, node.param) if one is not None]
    elif isinstance(node, ParenExpr | UnaryExpr | SubqueryExpr):
        inside = [node.expr]
    for one in inside:
        yield from walk(one, (*parents, node))


def selectors(expression: str) -> list[VectorSelector]:
    """Return the selectors of an expression."""
    return [one for one, _ in walk(parsed(expression)) if isinstance(one, VectorSelector)]


def name_of(selector: VectorSelector) -> str:
    """Return the name of the metric; "" where it is matched by an expression."""
    return selector.name or ""


def result_labels(node: Any, labels_of: LabelsOf) -> Labels:
    """Return the labels that a result may have."""
    if isinstance(node, VectorSelector):
        return labels_of(name_of(node))
    if isinstance(node, MatrixSelector):
        return labels_of(name_of(node.vector_selector))
    if isinstance(node, ParenExpr | UnaryExpr | SubqueryExpr):
        return result_labels(node.expr, labels_of)
    if isinstance(node, AggregateExpr):
        return _aggregated(node, labels_of)
    if isinstance(node, BinaryExpr):
        return _joined(node, labels_of)
    if isinstance(node, Call):
        return _called(node, labels_of)
    return frozenset()


def _aggregated(node: AggregateExpr, labels_of: LabelsOf) -> Labels:
    inner = result_labels(node.expr, labels_of)
    if str(node.op) in ("topk", "bottomk"):
        return inner
    by = frozenset(node.modifier.labels) if node.modifier else frozenset()
    made = {getattr(node.param, "val", "")} if str(node.op) == "count_values" else set()
    if node.modifier and node.modifier.type == AggModifierType.Without:
        return None if inner is None else inner - by | made
    return by | made


def _joined(node: BinaryExpr, labels_of: LabelsOf) -> Labels:
    left, right = (result_labels(one, labels_of) for one in (node.lhs, node.rhs))
    if str(node.op) == "or":
        return None if left is None or right is None else left | right
    if str(node.op) in ("and", "unless"):
        return left
    modifier = node.modifier
    if modifier is None or not modifier.matching:
        return left if left is None or left else right
    card = str(modifier.card)
    many = right if "OneToMany" in card else left
    if "OneToOne" in card and "Include" in str(modifier.matching.type):
        return frozenset(modifier.matching.labels)
    return None if many is None else many | frozenset(modifier.group_labels or ())


def _called(node: Call, labels_of: LabelsOf) -> Labels:
    name = node.func.name
    if name in ("label_replace", "label_join"):
        inner = result_labels(node.args[0], labels_of)
        return None if inner is None else inner | {node.args[1].val}
    if name in ("scalar", "vector", "time"):
        return frozenset()
    found = [result_labels(one, labels_of) for one in node.args]
    if name == "absent" or None in found:
        return None
    return frozenset().union(*(one for one in found if one is not None)) - (
        {"le"} if name == "histogram_quantile" else set()
    )


class Known:
    """The labels of every metric: of the catalogue, and of what rules record."""

    def __init__(self, rules: Path) -> None:
        self.families = {
            name: frozenset(family.labels) | (TARGET if family not in PUSHED else TARGET | _PUSHED)
            for name, family in {**all_families(), **hub_families()}.items()
        }
        self.families |= dict.fromkeys(_SCRAPE, TARGET)
        self.rules: dict[str, list[dict[str, Any]]] = {}
        for file in sorted(rules.glob("*.yaml")):
            for group in yaml.safe_load(file.read_text())["groups"]:
                for rule in group["rules"]:
                    names = [rule["record"]] if "record" in rule else ["ALERTS", "ALERTS_FOR_STATE"]
                    for name in names:
                        self.rules.setdefault(name, []).append(rule)
        trees = {
            name: [(parsed(rule["expr"]), rule.get("labels", {})) for rule in rules]
            for name, rules in self.rules.items()
        }
        # Rules read each other, and themselves: labels are added until there are no more.
        self._found: dict[str, Labels] = dict.fromkeys(self.rules, frozenset())
        while changed := [
            (name, labels)
            for name, rules in trees.items()
            if (labels := self._recorded(name, rules)) != self._found[name]
        ]:
            self._found.update(changed)

    def labels(self, name: str) -> Labels:
        """Return the labels that a metric may have; None if it is unknown or may have any."""
        if name in _ANY:
            return None
        return self.families.get(name, self._found.get(name))

    def _recorded(self, name: str, rules: list[tuple[Any, dict[str, str]]]) -> Labels:
        own = frozenset({"alertname", "alertstate"}) if name.startswith("ALERTS") else frozenset()
        for tree, added in rules:
            labels = result_labels(tree, self.labels)
            if labels is None:
                return None
            own |= labels | added.keys()
        return own
