"""What automation may take from a node for each fault (rules/automation.yaml): JSON for the hub,
which refuses a repair that can never start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tools.registry import ACTIONS, Alert, Fault, Registry

# Of rules/automation.yaml; tests/contract/test_automation.py holds them against it.
NEEDS_EMPTY = ("drain", "reset_device", "reboot_node", "replace")
JOBS_GO_ON = ("accelerators_missing", "row_remap_failure", "sram_worn_out")
SEVERITIES = ("critical", "warning", "info")


def service_of(fault: str, scope: str, severity: str, action: str) -> str:
    """The service of a fault that is confirmed with these labels; '' where none is."""
    if scope not in ("device", "node", "") or severity not in SEVERITIES:
        return ""
    if action not in NEEDS_EMPTY:
        return "drain_when_idle" if severity == "critical" else "keep"
    now = severity == "critical" and fault not in JOBS_GO_ON
    return "drain_now" if now else "drain_when_idle"


def services_json(registry: Registry) -> str:
    """By fault: its scopes and severities, by action its services, and by action those that it
    would have with another severity, which a site may choose.
    """
    labels: dict[str, set[tuple[str, str, str]]] = {}
    for fault, scope, severity, action in _alerts(registry):
        if severity != "none":
            actions = (action,) if action else ACTIONS
            labels.setdefault(fault, set()).update((scope, severity, one) for one in actions)
    lines = (f"{json.dumps(fault)}: {_row(fault, rows)}" for fault, rows in sorted(labels.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _row(fault: str, rows: set[tuple[str, str, str]]) -> str:
    shipped: dict[str, set[str]] = {}
    possible: dict[str, set[str]] = {}
    for scope, severity, action in rows:
        name = "investigate" if action == "drain" else action
        shipped.setdefault(name, set()).add(service_of(fault, scope, severity, action))
        possible.setdefault(name, set()).update(
            service_of(fault, scope, other, action) for other in SEVERITIES
        )
    return json.dumps(
        {
            "scopes": sorted({scope for scope, _, _ in rows}),
            "severities": sorted({severity for _, severity, _ in rows}),
            "services": {name: sorted(found - {""}) for name, found in sorted(shipped.items())},
            "possible": {name: sorted(found - {""}) for name, found in sorted(possible.items())},
        }
    )


def _alerts(registry: Registry) -> Iterator[tuple[str, str, str, str]]:
    """Fault, scope, severity and action; '' where its series have the label."""
    faults = [item for _, item in registry.items if isinstance(item, Fault)]
    severities = {
        name: item.alert.labels["severity"]
        for item in faults
        if item.alert is not None and "severity" in item.alert.labels
        for name in item.alert.faults or [item.fault]
    }
    for fault in faults:
        severity = severities.get(fault.fault, fault.severity)
        yield fault.fault, fault.scope, severity, fault.action
    for _, item in registry.items:
        if isinstance(item, Alert) and item.labels.get("fault", "none") != "none":
            of = item.labels.get
            yield item.labels["fault"], of("scope", ""), of("severity", ""), of("action", "")
