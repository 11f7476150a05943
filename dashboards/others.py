"""Metrics of other exporters that the dashboards and their recording rules read, by exporter."""

from __future__ import annotations

OTHERS: dict[str, frozenset[str]] = {
    "kube-state-metrics": frozenset(
        {
            "kube_pod_labels",
            "kube_pod_owner",
            "kube_pod_status_phase",
            "kube_pod_container_status_restarts_total",
        }
    ),
    "cAdvisor": frozenset(
        {
            "container_cpu_usage_seconds_total",
            "container_memory_working_set_bytes",
            "container_network_receive_bytes_total",
            "container_network_transmit_bytes_total",
            "container_fs_reads_bytes_total",
            "container_fs_writes_bytes_total",
        }
    ),
    "dcgm-exporter": frozenset({"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}),
    "npu-exporter": frozenset({"npu_container_info"}),
}
