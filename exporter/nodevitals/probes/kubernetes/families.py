"""The families of the probe `kubernetes`; `nodevitals_pod_accelerator_info` is in common."""

from __future__ import annotations

from nodevitals.probe import Families
from nodevitals.probes.common.accelerators import ACCELERATOR_INFO, OWNER_LABELS, WORKLOAD_LABELS

REQUESTS = ("list", "allocatable", "pods", "node")
RESULTS = ("ok", "denied", "throttled", "timeout", "unavailable", "error")
UNKNOWN_POD, LIMIT = "unknown_pod", "limit"

_pod = Families("pod")
PCI_DEVICE_INFO = _pod.gauge(
    "pci_device_info",
    "Always 1; a device of the pod whose ID at the kubelet is a PCI address, such as an SR-IOV "
    "function of a NIC.",
    *("namespace", "pod", "container", "resource", "pci_bus_id"),
)
OOM_KILLS = _pod.counter(
    "oom_kills_total",
    "Number of times that the kernel's OOM killer ended a process of the container; the series "
    "ends a day after the last time.",
    *WORKLOAD_LABELS,
)

_node = Families("node")
SCHEDULABLE = _node.gauge("schedulable", "Whether the node takes new pods: 0 when it is cordoned.")
CONDITION = _node.gauge(
    "condition",
    "Whether the condition of the node holds; missing where it is Unknown.",
    "condition",
)

_kubernetes = Families("kubernetes")
ALLOCATABLE = _kubernetes.gauge(
    "devices_allocatable", "Number of healthy devices that the kubelet may allocate.", "resource"
)
ALLOCATED = _kubernetes.gauge(
    "devices_allocated", "Number of different devices that containers have.", "resource"
)
UNRESOLVED = _kubernetes.gauge(
    "devices_unresolved",
    "Number of accelerators that containers have and whose uuid is not known; "
    "nodevitals_pod_accelerator_info lacks them.",
    "resource",
)
PODS = _kubernetes.gauge(
    "pods",
    "Number of pods that have devices, by whether their labels are known.",
    metadata=("known", "unknown"),
)
WITHOUT_LABEL = _kubernetes.gauge(
    "pods_without_label",
    "Number of pods with devices whose labels are known and that have none of those configured.",
    label=OWNER_LABELS,
)
CACHED = _kubernetes.gauge("pods_cached", "Number of pods of the node whose labels are kept.")
DROPPED = _kubernetes.gauge(
    "dropped",
    "Number of series that are not exposed because of max_series, and of pods that are not kept "
    "because of max_pods or their size.",
    kind=("series", "pods"),
)
PODS_READ = _kubernetes.gauge(
    "pods_read_timestamp_seconds", "Unix time at which the labels of the pods were last read."
)
API_REQUESTS = _kubernetes.counter(
    "requests_total",
    "Number of requests to the kubelet's socket (list, allocatable), and for pods and the node.",
    request=REQUESTS,
    result=RESULTS,
)
OOM_UNATTRIBUTED = _kubernetes.counter(
    "oom_kills_unattributed_total",
    "Number of OOM kills in pods that were never listed, or beyond the limit on series.",
    reason=(UNKNOWN_POD, LIMIT),
)

FAMILIES = (ACCELERATOR_INFO, *_pod, *_node, *_kubernetes)
