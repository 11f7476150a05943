"""Metrics of other exporters that the dashboards and their recording rules read, by exporter."""

from __future__ import annotations

OTHERS: dict[str, frozenset[str]] = {
    "Prometheus": frozenset({"ALERTS", "ALERTS_FOR_STATE", "up"}),
    "kube-state-metrics": frozenset(
        {
            "kube_job_complete",
            "kube_job_failed",
            "kube_job_status_start_time",
            "kube_pod_container_resource_requests",
            "kube_pod_status_phase",
        }
    ),
}
