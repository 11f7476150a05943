"""Probe `kubernetes`: which pod has which accelerator, whether the node takes pods, and which pods
the kernel's OOM killer hit.

In: the kubelet's pod resources API over its Unix socket; labels and annotations of the pods and the
node's conditions over HTTPS; messages of `nvidia` and `ascend` (the accelerators) and of
`kernel_log` (OOM kills). Out: `pod_*`, `kubernetes_*`, `node_schedulable`, `node_condition`. The
worker ends after each run, because it imports grpcio.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from nodevitals.linux.host import node_name
from nodevitals.linux.sysfs import list_names, read_text
from nodevitals.probe import Absent, Probe, ProbeError, Readings
from nodevitals.probes.common.workloads import OWNER_LABELS
from nodevitals.probes.kubernetes import kubelet, metadata, report
from nodevitals.probes.kubernetes.devices import needs_minors, parse_minor
from nodevitals.probes.kubernetes.families import (
    API_REQUESTS,
    CACHED,
    CONDITION,
    DROPPED,
    FAMILIES,
    OOM_KILLS,
    OOM_UNATTRIBUTED,
    PODS_READ,
    REQUESTS,
    RESULTS,
    SCHEDULABLE,
)
from nodevitals.probes.kubernetes.https import Server, ThrottledError
from nodevitals.probes.kubernetes.kubelet import CallError
from nodevitals.probes.kubernetes.messages import Accelerators, OomKills
from nodevitals.probes.kubernetes.podresources import Container, Devices
from nodevitals.probes.kubernetes.pods import KnownPod, known_pod
from nodevitals.probes.kubernetes.settings import KubernetesSettings
from nodevitals.probes.kubernetes.state import MAX_WAIT_SECONDS, Failure, KubernetesState

T = TypeVar("T")
# Shares of the timeout; the rest is for the start, the import and the report.
KUBELET_SHARE = 0.35
PODS_SHARE = 0.3
NODE_SHARE = 0.15
GPUS = "GPUs"


class KubernetesProbe(Probe):
    """Kubernetes: which pod has which accelerator, with its job, owner and queue; whether the node
    takes pods; OOM kills of pods.
    """

    name = "kubernetes"
    families = FAMILIES
    Settings = KubernetesSettings
    State = KubernetesState
    Message = Accelerators | OomKills
    persistent = True
    settings: KubernetesSettings
    state: KubernetesState

    def run(self, readings: Readings) -> None:
        """Ask the kubelet, then for the pods and the node where that is due; report everything that
        is known, also where one of them failed.
        """
        self._readings, self._now = readings, time.time()
        self._problems: list[ProbeError] = []
        self._allocatable: list[Devices] | None = None
        self.state = self.state.in_boot(self.host.boot_id())
        for message in readings.received:
            self.state.receive(message, self._now)
        self._find_source()
        self._ask_kubelet()
        self._start_counters()
        containers = self._containers()
        mark = readings.mark()
        self._report(containers)
        # From here on a driver or the network may hang; what is above is exposed nevertheless.
        if self._read_minors(containers) | self._read_pods(containers):
            readings.discard_since(mark)
            self._report(containers)
        self._read_node()
        self._report_node()
        self._report_oom_kills()
        if self._problems:
            raise self._problems[0]

    def _ask_kubelet(self) -> None:
        """List the devices. Raises Absent where no kubelet was seen since boot."""
        path = self.settings.socket
        path = kubelet.find_socket(self.host.root(path), path)
        seconds = KUBELET_SHARE * self.timing.timeout_seconds
        self._readings.at("kubelet", path)
        connection = None
        try:
            kubelet.check_socket(path)
            connection = kubelet.Kubelet(path, seconds)
            self.state.listed(self._counted("list", connection.containers), self._now)
            self._allocatable = self._read_allocatable(connection)
        except Absent as error:
            if not self.state.answered:
                raise
            text = f"{error}, which answered before: is it running? systemctl status kubelet"
            self._problems.append(ProbeError("kubelet", text))
        except ProbeError as error:
            self._problems.append(error)
        finally:
            if connection is not None:
                connection.close()

    def _read_allocatable(self, connection: kubelet.Kubelet) -> list[Devices] | None:
        """The devices that may be allocated; None from a kubelet that lacks the call."""
        try:
            return self._counted("allocatable", connection.allocatable)
        except kubelet.UnsupportedError:
            return None

    def _counted(self, request: str, call: Callable[[], T]) -> T:
        try:
            found = call()
        except CallError as error:
            self._readings.increment(API_REQUESTS, 1, request, error.result)
            raise
        self._readings.increment(API_REQUESTS, 1, request, "ok")
        return found

    def _containers(self) -> list[Container]:
        """The containers with devices as last listed, for as long as samples are fresh."""
        age = self._now - self.state.listed_at
        return self.state.containers if 0 <= age <= self.timing.stale_after_seconds else []

    def _find_source(self) -> None:
        self._api = metadata.api_server(self.settings)
        try:
            self._source = metadata.source_of(self.settings, self._api)
        except ProbeError as error:
            self._source = "none"
            self._problems.append(error)

    def _start_counters(self) -> None:
        """Let the counters of the requests that will be made start at 0."""
        made = REQUESTS[:2] if self._source == "none" else REQUESTS
        for request in made:
            for result in RESULTS:
                self._readings.increment(API_REQUESTS, 0, request, result)

    def _read_minors(self, containers: list[Container]) -> bool:
        """Read the minor numbers of the GPUs, where an ID has one; whether they are others now."""
        ids = [one for container in containers for part in container.devices for one in part.ids]
        claims = [claim.device for container in containers for claim in container.claims]
        if GPUS in self._readings.interrupted or not needs_minors([*ids, *claims]):
            return False
        folder = self.host.proc("driver/nvidia/gpus")
        self._readings.at(GPUS, str(folder))
        texts = [read_text(folder / name / "information") for name in list_names(folder)]
        read = dict(pair for text in texts if (pair := parse_minor(text or "")) is not None)
        # One that cannot be read for a while is what it was.
        accelerators = self.state.accelerators
        before = accelerators.minors
        kept = {minor: uuid for minor, uuid in before.items() if uuid not in read.values()}
        accelerators.minors = kept | read
        return accelerators.minors != before

    def _report(self, containers: list[Container]) -> None:
        """Expose devices and pods, with the labels that are known now."""
        readings, settings, cache = self._readings, self.settings, self.state.cache
        pods = {} if self._source == "none" else cache.by_key()
        node = self.state.accelerators
        found = report.allocations(containers, pods, node, readable=self._source != "none")
        if self._now - self.state.listed_at <= self.timing.stale_after_seconds:
            report.add_devices(readings, found, pods, settings.site_labels, settings.max_series)
            report.add_counts(readings, found, self._allocatable)
        if self._source != "none":
            readings.add(CACHED, len(cache.pods))
            readings.add(DROPPED, cache.dropped, "pods")
            readings.add(PODS_READ, cache.read_at or None)

    def _read_pods(self, containers: list[Container]) -> bool:
        """Read the pods where one is unknown or all are old; whether they were read."""
        state, names = self.state, self.settings.names
        keys = {f"{one.namespace}/{one.pod}" for one in containers}
        wanted = state.cache.wanted(keys) or state.oom.wants_reading(state.cache.by_uid())
        due = wanted or not state.cache.is_current(names, self._now, self.settings.refresh)
        if self._source == "none" or not due or not self._may("pods"):
            return False
        seconds = PODS_SHARE * self.timing.timeout_seconds
        server = self._server()
        self._readings.at(server.name, "GET pods")
        found = self._attempt("pods", lambda: self._pods(server, seconds))
        if found is None:
            return False
        state.cache.update(found, keys, names, self._now, self.settings.max_pods)
        state.oom.was_read()
        return True

    def _server(self) -> Server:
        if self._source == "kubelet" or self._api is None:
            return metadata.kubelet_server(self.settings)
        return self._api

    def _pods(self, server: Server, seconds: float) -> list[KnownPod]:
        if self._source == "kubelet":
            pods = metadata.read_pods_of_kubelet(server, seconds)
        else:
            pods = metadata.read_pods(server, self._node_name(), seconds)
        return [known_pod(pod, self.settings.names) for pod in pods]

    def _node_name(self) -> str:
        return self.settings.node or node_name()

    def _read_node(self) -> None:
        """Read the node where that is due, from the API server: the kubelet has no conditions."""
        node, api = self.state.node, self._api
        is_old = node is None or not 0 <= self._now - node.read_at < self.settings.node_interval
        if self._source == "none" or api is None or not is_old or not self._may("node"):
            return
        seconds = NODE_SHARE * self.timing.timeout_seconds
        self._readings.at("API server", "GET node")
        found = self._attempt("node", lambda: metadata.read_node(api, self._node_name(), seconds))
        if found is not None:
            found.read_at = self._now
            self.state.node = found

    def _may(self, request: str) -> bool:
        """Whether an earlier failure permits another attempt; it remains the run's error."""
        failure = self.state.failures.get(request)
        if failure is None or not failure.holds(self._now):
            return True
        self._problems.append(failure.error())
        return False

    def _attempt(self, request: str, read: Callable[[], T]) -> T | None:
        """What was read; None where that failed, which is not tried again at once."""
        try:
            found = self._counted(request, read)
        except ProbeError as error:
            self._problems.append(error)
            wait = error.seconds if isinstance(error, ThrottledError) else 0.0
            retry_at = self._now + min(wait, MAX_WAIT_SECONDS)
            self.state.failures[request] = Failure(error.reason, error.message, retry_at)
            return None
        self.state.failures.pop(request, None)
        return found

    def _report_node(self) -> None:
        node = self.state.node
        kept = max(3 * self.settings.node_interval, self.timing.stale_after_seconds)
        if node is None or not 0 <= self._now - node.read_at <= kept:
            return
        self._readings.add(SCHEDULABLE, node.schedulable)
        for condition, holds in sorted(node.conditions.items()):
            self._readings.add(CONDITION, holds, condition)

    def _report_oom_kills(self) -> None:
        pods, readable = self.state.cache.by_uid(), self._source != "none"
        oom = self.state.oom
        none = oom.attribute(pods, _oom_labels, self._now, readable=readable)
        for reason, count in none.items():
            self._readings.increment(OOM_UNATTRIBUTED, count, reason)
        for labels, count in oom.report(self._now):
            self._readings.add(OOM_KILLS, count, *labels)


def _oom_labels(pod: KnownPod, container: str) -> tuple[str, ...]:
    owner = [pod.labels.get(label, "") for label in OWNER_LABELS]
    return (pod.namespace, pod.name, container, *owner)
