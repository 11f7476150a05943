"""Probe `kubernetes`: which pod has which accelerator, whether the node takes pods, and which pods
the kernel's OOM killer hit.

In: the kubelet's pod resources API over its Unix socket; labels and annotations of the pods and the
node's conditions over HTTPS; messages of `nvidia` and `ascend` (the accelerators) and of
`kernel_log` (OOM kills). Out: `pod_*`, `kubernetes_*`, `node_schedulable`, `node_condition`.
"""

from __future__ import annotations

import importlib
import time
from typing import Union

from nodevitals.probe import Probe, Readings
from nodevitals.probes.common.accelerators import OWNER_LABELS
from nodevitals.probes.kubernetes import report
from nodevitals.probes.kubernetes.families import (
    CACHED,
    CONDITION,
    DROPPED,
    FAMILIES,
    OOM_KILLS,
    OOM_UNATTRIBUTED,
    PODS_READ,
    SCHEDULABLE,
)
from nodevitals.probes.kubernetes.kubelet import import_libraries
from nodevitals.probes.kubernetes.messages import Accelerators, OomKills
from nodevitals.probes.kubernetes.podresources import Container
from nodevitals.probes.kubernetes.pods import KnownPod
from nodevitals.probes.kubernetes.reads import Reads
from nodevitals.probes.kubernetes.settings import KubernetesSettings
from nodevitals.probes.kubernetes.state import KubernetesState


class KubernetesProbe(Probe):
    """Kubernetes: which pod has which accelerator, whether the node takes pods, OOM kills of pods.
    With the pod's job, owner and queue.
    """

    name = "kubernetes"
    families = FAMILIES
    Settings = KubernetesSettings
    State = KubernetesState
    Message = Union[Accelerators, OomKills]
    persistent = True
    settings: KubernetesSettings
    state: KubernetesState

    @classmethod
    def preload(cls) -> None:
        """Import the HTTP/2 library: that takes longer than a run."""
        import_libraries()
        importlib.import_module("nodevitals.probes.kubernetes.grpc")

    def run(self, readings: Readings) -> None:
        """Ask the kubelet, then read the pods and the node if that is due; report all known data,
        also if one of the reads failed.
        """
        self._readings, self._now = readings, time.time()
        self.state = self.state.in_boot(self.host.boot_id())
        for message in readings.received:
            self.state.receive(message, self._now)
        seconds = self.timing.timeout_seconds
        self._reads = reads = Reads(self.settings, self.state, readings, self._now, seconds)
        reads.kubelet(self.host)
        reads.start_counters()
        mark = readings.mark()
        containers = self._containers()
        self._report(containers)
        # From here on a driver or the network may hang; the samples so far are exposed anyway.
        if reads.minors(self.host, containers) | reads.pods(containers):
            readings.discard_since(mark)
            self._report(containers)
        reads.node()
        self._report_node()
        self._report_oom_kills()
        if reads.problems:
            raise reads.problems[0]

    def _is_listed(self) -> bool:
        """Whether the last list of containers is not older than samples may be."""
        if self._reads.listed is not None:
            return True
        return 0 <= self._now - self.state.listed_at <= self.timing.stale_after_seconds

    def _containers(self) -> list[Container]:
        listed = self._reads.listed
        if listed is not None:
            return listed
        return self.state.containers if self._is_listed() else []

    def _report(self, containers: list[Container]) -> None:
        """Expose devices and pods, with the labels that are known now."""
        readings, settings, cache = self._readings, self.settings, self.state.cache
        readable = self._reads.readable
        pods = cache.by_key() if readable else {}
        node = self.state.accelerators
        allocations = report.allocations(containers, pods, node, readable=readable)
        if self._is_listed():
            report.add_devices(
                readings, allocations, pods, settings.site_labels, settings.max_series
            )
            report.add_counts(readings, allocations, self._reads.allocatable)
        if readable:
            readings.add(CACHED, len(cache.pods))
            readings.add(DROPPED, cache.dropped, "pods")
            readings.add(PODS_READ, cache.read_at or None)

    def _report_node(self) -> None:
        node = self.state.node
        kept = max(3 * self.settings.node_interval, self.timing.stale_after_seconds)
        if node is None or not 0 <= self._now - node.read_at <= kept:
            return
        self._readings.add(SCHEDULABLE, node.schedulable)
        for condition, holds in sorted(node.conditions.items()):
            self._readings.add(CONDITION, holds, condition)

    def _report_oom_kills(self) -> None:
        pods, oom = self.state.cache.by_uid(), self.state.oom
        readable = self._reads.readable
        none = oom.attribute(pods, _oom_labels, self._now, readable=readable)
        for reason, count in none.items():
            self._readings.increment(OOM_UNATTRIBUTED, count, reason)
        for labels, count in oom.report(self._now):
            self._readings.add(OOM_KILLS, count, *labels)


def _oom_labels(pod: KnownPod, container: str) -> tuple[str, ...]:
    owner = [pod.labels.get(label, "") for label in OWNER_LABELS]
    return (pod.namespace, pod.name, container, *owner)
