"""docs/own-alert.md: which alerts have the labels of their target, as the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from nodevitals.commands.rules.alert_labels import label_sets, recorded_faults
from nodevitals.commands.rules.rule_files import Rule
from nodevitals.commands.rules.site.pack import Pack, read_pack
from testbed import promql
from testbed.node import ROOT

PAGE = (ROOT / "docs/own-alert.md").read_text()
_ONE = "label_of_the_target"
_FAULTS = re.compile(r'nodevitals:fault\{fault=~?"([\w|]+)"\}')


def test_the_page_names_the_alerts_of_a_node_without_the_labels_of_its_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Computed from the expressions, with one more label at each scraped series."""
    monkeypatch.setattr(promql, "TARGET", promql.TARGET | {_ONE})
    known = promql.Known(ROOT / "rules")
    assert _ONE in (known.labels("nodevitals_rdma_port_up") or ())
    pack = read_pack(ROOT / "rules")
    without = {rule.name for rule in _of_one_node(pack) if not _keeps(rule, pack, known)}
    [named] = re.findall(r"computed from sums:\s([^.]+)\.", PAGE)
    assert set(re.findall(r"\w+", named)) == without
    assert "RdmaPortDown" not in without
    assert "NodeDown" not in without


def _of_one_node(pack: Pack) -> Iterator[Rule]:
    """Alerts that notify of a device or a node."""
    faults = recorded_faults(pack.rules)
    for rule in pack.alerts:
        sets = label_sets(rule, faults)
        if any(
            one.get("scope") in ("device", "node") and one.get("severity") != "none" for one in sets
        ):
            yield rule


def _keeps(rule: Rule, pack: Pack, known: promql.Known) -> bool:
    """Whether the series of an alert have the label in all cases."""
    chosen = _FAULTS.fullmatch(rule.expression.strip())
    if not chosen:
        return _has(rule.expression, known)
    faults = chosen[1].split("|")
    recorded = [one for one in pack.rules if one.labels.get("fault") in faults and not one.is_alert]
    return all(_has(one.expression, known) for one in recorded)


def _has(expression: str, known: promql.Known) -> bool:
    labels = promql.result_labels(promql.parsed(expression), known.labels)
    return labels is None or _ONE in labels
