"""Metrics of other exporters that the dashboards and their recording rules read, by exporter."""

from __future__ import annotations

OTHERS: dict[str, frozenset[str]] = {
    "kube-state-metrics": frozenset({"kube_node_spec_unschedulable"}),
    "prometheus": frozenset({"ALERTS", "ALERTS_FOR_STATE", "up"}),
}
