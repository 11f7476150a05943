"""The chart's rule files: the rule pack in, rules with what a site's values change in them out.

A template of the chart cannot parse PromQL. So each rule carries, under the key `site`, what
`nodevitals rules render` would make of it for each value; templates/_rules.tpl only selects:
    shipped: severity as the keys of `alerts` name it (NAME/SEVERITY)
    severity: labels, and where needed the expression, by a chosen severity and by profile `large`
    thresholds: those that the rule compares a node with, in the order of the keys of `pools`
    pools: the expression by those of them that differ by pool
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import yaml

from nodevitals.commands.rules.alert_labels import label_sets, recorded_faults
from nodevitals.commands.rules.findings import Finding
from nodevitals.commands.rules.rule_files import Rule, RuleFile, parse_rules
from nodevitals.commands.rules.site.pack import Pack
from nodevitals.commands.rules.site.pools import pool_problem, with_pools
from nodevitals.commands.rules.site.severity import severity_edit
from nodevitals.commands.rules.site.values import AlertValues, Values, with_names

# The dot is [.] where the job is part of a regular expression.
NAMES = Values(job="__job.__", runbook_base="__runbook_base__")
_HEAD = "# Made from rules/{} by `make generate`, for templates/_rules.tpl.\n"
_SEVERITIES: tuple[Literal["critical", "warning", "info"], ...] = ("critical", "warning", "info")


def chart_rules(pack: Pack) -> dict[str, str]:
    """The files of the chart's folder files/rules, by name."""
    pooled = {name for name in pack.thresholds if not pool_problem(name, pack.rules)}
    faults = recorded_faults(pack.rules)
    made = {}
    for name, file in pack.files.items():
        text = with_names("\n".join(file.lines), NAMES)
        document = yaml.safe_load(text)
        shapes = [rule for group in document["groups"] for rule in group["rules"]]
        for shape, rule in zip(shapes, _parsed(file, text).rules, strict=True):
            site = _pools(rule, pooled)
            if rule.is_alert:
                site |= _severities(rule, label_sets(rule, faults))
            if site:
                shape["site"] = site
        made[name] = _HEAD.format(name) + yaml.dump(
            document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6
        )
    return made


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as blocks, and what is used twice twice."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Always."""
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # A job may be a number.
    style = "|" if "\n" in text else '"' if text == NAMES.job else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


def _parsed(file: RuleFile, text: str) -> RuleFile:
    found: list[Finding] = []
    parsed = parse_rules(Path(file.path), text.encode(), found)
    if parsed is None:
        raise SystemExit("\n".join(map(str, found)))
    return parsed


def _pools(rule: Rule, thresholds: Collection[str]) -> dict[str, Any]:
    """The expressions for pools: by those thresholds of the rule that differ by pool."""
    text = rule.expression
    compared = sorted(name for name in thresholds if with_pools(text, {name}) != text)
    chosen = [
        names for size in range(1, len(compared) + 1) for names in combinations(compared, size)
    ]
    forms = {" ".join(names): with_pools(text, names) for names in chosen}
    return {"thresholds": compared, "pools": forms} if forms else {}


def _severities(rule: Rule, sets: list[dict[str, str]]) -> dict[str, Any]:
    """What `rules render` changes for each severity that a site may choose, and for the profile."""
    chosen: dict[str, Values] = {
        severity: Values(alerts={rule.name: AlertValues(severity=severity)})
        for severity in _SEVERITIES
    }
    edits = {
        key: severity_edit(values, rule, sets)
        for key, values in {**chosen, "large": Values(profile="large")}.items()
    }
    changes = {
        key: {"labels": edit.labels, **({"expr": edit.expression} if edit.expression else {})}
        for key, edit in edits.items()
        if edit.labels
    }
    return {"shipped": sets[0].get("severity", ""), "severity": changes}
