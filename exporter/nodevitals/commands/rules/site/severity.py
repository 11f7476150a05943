"""The severity of an alert at a site: the shipped one, the profile's, or that of the values file.

The faults keep theirs: incidents and automation compare those. Only the alert, which decides who is
notified, changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodevitals.commands.rules.alert_labels import LabelSet
from nodevitals.commands.rules.rule_files import Rule
from nodevitals.commands.rules.site.values import AlertValues, Values
from nodevitals.commands.terminal import CommandError

# In the profile `large`, critical alerts with these scopes are tickets.
TICKET_SCOPES = ("device", "node")
_NONE = AlertValues()
_TEMPLATE = (
    '{{ if and (eq $labels.severity "critical") (ne $labels.scope "fleet") }}warning'
    "{{ else }}{{ $labels.severity }}{{ end }}"
)


def changes_of(values: Values, name: str, severity: str) -> AlertValues:
    """The changes of an alert: those of NAME/SEVERITY (the shipped one), or else of NAME."""
    return values.alerts.get(f"{name}/{severity}") or values.alerts.get(name, _NONE)


def severity_of(values: Values, name: str, labels: Mapping[str, Any]) -> str:
    """The severity of an alert that is shipped with these labels."""
    shipped = str(labels.get("severity", ""))
    chosen = changes_of(values, name, shipped).severity
    if chosen is not None:
        return chosen
    is_single = labels.get("scope") in TICKET_SCOPES
    large = values.profile == "large"
    return "warning" if large and shipped == "critical" and is_single else shipped


def severity_edit(values: Values, rule: Rule, sets: Sequence[LabelSet]) -> dict[str, str]:
    """The `severity` and `expr` of a rule where they change. Raises CommandError where one rule
    would have to be split.
    """
    before = [labels.get("severity", "") for labels in sets]
    after = [severity_of(values, rule.name, labels) for labels in sets]
    unknown = values.profile == "large" and any(
        "severity" not in labels or "scope" not in labels for labels in sets if _may_page(labels)
    )
    if changes_of(values, rule.name, before[0]).severity is not None:
        unknown = False
    if before == after and not unknown:
        return {}
    # Critical and warning at once, and equal but for that, would be the same alert twice.
    kinds = [{**labels, "severity": ""} for labels in sets]
    doubled = any(kinds.count(labels) > 1 for labels in kinds)
    if len(set(after)) == 1 and not unknown:
        wrapped = f"max without (severity) (\n{rule.expression.strip()}\n)"
        return {"severity": after[0], **({"expr": wrapped} if doubled else {})}
    if doubled:
        text = "split the rule by severity, to change only one of them"
        raise CommandError(f"{rule.file}:{rule.first_line}: {rule.name}: {text}")
    return {"severity": _TEMPLATE}


def _may_page(labels: LabelSet) -> bool:
    return labels.get("severity", "critical") == "critical"
