"""The severity of an alert at a site: the shipped one, the profile's, or that of the values file.

Faults keep their severity, which incidents and automation compare. Only the alert, which decides
about the receivers, changes; it has the severity of its fault as `fault_severity`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nodevitals.commands.rules.alert_labels import FAULT, LabelSet, severities
from nodevitals.commands.rules.rule_files import Rule
from nodevitals.commands.rules.site.values import AlertValues, Values
from nodevitals.commands.terminal import FOUND_WRONG, CommandError

# In the profile `large`, critical alerts with these scopes are tickets.
TICKET_SCOPES = ("device", "node")
FAULT_SEVERITY = "fault_severity"
_NONE = AlertValues()
_ONE_FAULT = re.compile(rf"{FAULT}\{{[^{{}}]*\}}")


def changes_of(values: Values, name: str, severity: str) -> AlertValues:
    """The changes of an alert: those for NAME/SEVERITY (the shipped one), otherwise for NAME."""
    return values.alerts.get(f"{name}/{severity}") or values.alerts.get(name, _NONE)


def severity_of(values: Values, name: str, labels: Mapping[str, Any]) -> str:
    """The severity of an alert that is shipped with these labels."""
    shipped = str(labels.get("severity", ""))
    return changes_of(values, name, shipped).severity or _by_profile(values, labels)


def _by_profile(values: Values, labels: Mapping[str, Any]) -> str:
    shipped = str(labels.get("severity", ""))
    is_single = labels.get("scope") in TICKET_SCOPES
    large = values.profile == "large"
    return "warning" if large and shipped == "critical" and is_single else shipped


class SeverityEdit(NamedTuple):
    """The labels and the expression ('': as it is) that a severity needs."""

    labels: dict[str, str]
    expression: str = ""


def severity_edit(values: Values, rule: Rule, sets: Sequence[LabelSet]) -> SeverityEdit:
    """The changes in a rule. Raises CommandError where the rule would have to be split."""
    before = [labels.get("severity", "") for labels in sets]
    # A rule with several severities is not changed by NAME/SEVERITY, which names another rule.
    chosen = changes_of(values, rule.name, before[0]).severity
    after = [chosen or _by_profile(values, labels) for labels in sets]
    unknown = (
        not chosen
        and values.profile == "large"
        and any(
            "severity" not in labels or "scope" not in labels
            for labels in sets
            if _may_page(labels)
        )
    )
    if before == after and not unknown:
        return SeverityEdit({})
    if len(set(after)) > 1 or unknown:
        is_single = 'and (eq $labels.severity "critical") (ne $labels.scope "fleet")'
        otherwise = "{{ else }}{{ $labels.severity }}{{ end }}"
        severity = f"{{{{ if {is_single} }}}}warning{otherwise}"
        fault = f"{{{{ if {is_single} }}}}critical{{{{ end }}}}"
    else:
        severity, fault = after[0], before[0]
        if len(set(before)) > 1 or "" in before:
            changed = f'if ne $labels.severity "{severity}"'
            fault = f"{{{{ {changed} }}}}{{{{ $labels.severity }}}}{{{{ end }}}}"
    labels = {"severity": severity, FAULT_SEVERITY: fault}
    # A critical fault that is also recorded as a warning would be the same alert twice.
    kinds = [{**labels, "severity": ""} for labels in sets]
    doubled = any(kinds.count(kind) > 1 for kind in kinds)
    return SeverityEdit(labels, _most_severe(rule, sets) if doubled else "")


def _most_severe(rule: Rule, sets: Sequence[LabelSet]) -> str:
    """The expression with one series where there is one per severity."""
    plain = rule.expression.strip()
    worst, *others = severities(sets)
    if len(others) != 1 or not _ONE_FAULT.fullmatch(plain):
        text = "split the rule by severity, to change only one of them"
        place = f"{rule.file}:{rule.first_line}: {rule.name}"
        raise CommandError(f"{place}: {text}", FOUND_WRONG)
    only = plain.replace("{", f'{{severity="{worst}", ', 1)
    return f"{only}\n  or ignoring (severity)\n{plain}"


def _may_page(labels: LabelSet) -> bool:
    return labels.get("severity", "critical") == "critical"
