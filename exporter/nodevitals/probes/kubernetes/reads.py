"""The reads of one run: when each is due, its counter, what failed, and when to try again.

In: the settings, the state and the run's Readings. Out: a changed state, and `problems`. A failed
read removes nothing from the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from nodevitals.linux.host import node_name
from nodevitals.linux.sysfs import list_names, read_text
from nodevitals.probe import Absent, Host, ProbeError, Readings
from nodevitals.probes.kubernetes import api, kubelet
from nodevitals.probes.kubernetes.api import ThrottledError
from nodevitals.probes.kubernetes.devices import needs_minors, parse_minor
from nodevitals.probes.kubernetes.families import API_REQUESTS, REQUESTS, RESULTS
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


class Reads:
    """The reads of one run, at the Unix time `now`, with so many seconds in all."""

    def __init__(
        self,
        settings: KubernetesSettings,
        state: KubernetesState,
        readings: Readings,
        now: float,
        seconds: float,
    ) -> None:
        self._settings, self._state, self._readings = settings, state, readings
        self._now, self._seconds = now, seconds
        self.problems: list[ProbeError] = []
        self.listed: list[Container] | None = None
        """The containers with devices; None where the kubelet has not said."""
        self.allocatable: list[Devices] | None = None
        """The devices that may be allocated; None where the kubelet has not said."""
        self._api = api.api_server(settings)
        try:
            self._source = api.source_of(settings, self._api)
        except ProbeError as error:
            self._source = "none"
            self.problems.append(error)
        self.readable = self._source != "none"
        """Whether pods are read at all."""

    def start_counters(self) -> None:
        """Let the counters of the requests that will be made start at 0."""
        for request in REQUESTS if self.readable else REQUESTS[:2]:
            for result in RESULTS:
                self._readings.increment(API_REQUESTS, 0, request, result)

    def kubelet(self, host: Host) -> None:
        """List the devices. Raises Absent if no kubelet was seen since boot."""
        path = kubelet.find_socket(host.root(self._settings.socket), self._settings.socket)
        self._readings.at("kubelet", path)
        connection = None
        try:
            self._check_socket(path)
            connection = kubelet.Kubelet(path, KUBELET_SHARE * self._seconds)
            self.listed = self._counted("list", connection.containers)
            self._state.listed(self.listed, self._now)
            self.allocatable = self._counted("allocatable", connection.allocatable)
        except kubelet.UnsupportedError as error:
            if self.listed is None:
                self.problems.append(error)
        except Absent as error:
            if not self._state.answered:
                raise
            text = f"{error}, which answered before: is it running? systemctl status kubelet"
            self.problems.append(ProbeError("kubelet", text))
        except ProbeError as error:
            self.problems.append(error)
        finally:
            if connection is not None:
                connection.close()

    def _check_socket(self, path: str) -> None:
        """Check the socket before the call: a failure is raised and counted as that of the call."""
        try:
            kubelet.check_socket(path)
        except kubelet.CallError as error:
            self._readings.increment(API_REQUESTS, 1, "list", error.result)
            raise

    def minors(self, host: Host, containers: list[Container]) -> bool:
        """Read the minor numbers of the GPUs if an ID has one. Returns whether they changed."""
        ids = [id_ for container in containers for part in container.devices for id_ in part.ids]
        claims = [claim.device for container in containers for claim in container.claims]
        if GPUS in self._readings.interrupted or not needs_minors([*ids, *claims]):
            return False
        folder = host.proc("driver/nvidia/gpus")
        self._readings.at(GPUS, str(folder))
        texts = [read_text(folder / name / "information") for name in list_names(folder)]
        read = dict(pair for text in texts if (pair := parse_minor(text or "")) is not None)
        # A number that cannot be read for a while keeps its last value.
        accelerators = self._state.accelerators
        before = accelerators.minors
        kept = {minor: uuid for minor, uuid in before.items() if uuid not in read.values()}
        accelerators.minors = kept | read
        return accelerators.minors != before

    def pods(self, containers: list[Container]) -> bool:
        """Read the pods if one is unknown or all are old. Returns whether they were read."""
        cache, oom, settings = self._state.cache, self._state.oom, self._settings
        keys = {container.pod_key for container in containers}
        wanted = cache.wanted(keys) or oom.wants_reading(cache.by_uid())
        due = wanted or not cache.is_current(settings.names, self._now, settings.refresh)
        if not self.readable or not due or not self._may("pods"):
            return False
        pods = self._attempt("pods", self._read_pods)
        if pods is None:
            return False
        cache.update(pods, keys, settings.names, self._now, settings.max_pods)
        oom.was_read()
        return True

    def _read_pods(self) -> list[KnownPod]:
        seconds = PODS_SHARE * self._seconds
        self._readings.at("pods", f"GET pods from {self._source}")
        if self._source == "kubelet" or self._api is None:
            server = api.kubelet_server(self._settings)
            pods = api.read_pods_of_kubelet(server, seconds)
        else:
            pods = api.read_pods(self._api, self._node_name(), seconds)
        return [known_pod(pod, self._settings.names) for pod in pods]

    def node(self) -> None:
        """Read the node if that is due, from the API server: the kubelet has no conditions."""
        node, server = self._state.node, self._api
        interval = self._settings.node_interval
        is_old = node is None or not 0 <= self._now - node.read_at < interval
        if not self.readable or server is None or not is_old or not self._may("node"):
            return
        self._readings.at("node", "GET node from api")
        seconds = NODE_SHARE * self._seconds
        read = self._attempt("node", lambda: api.read_node(server, self._node_name(), seconds))
        if read is not None:
            read.read_at = self._now
            self._state.node = read

    def _node_name(self) -> str:
        return self._settings.node or node_name()

    def _may(self, request: str) -> bool:
        """Whether an earlier failure permits another attempt; if not, it is the run's error
        again.
        """
        failure = self._state.failures.get(request)
        if failure is None or not failure.holds(self._now):
            return True
        self.problems.append(failure.error())
        return False

    def _attempt(self, request: str, read: Callable[[], T]) -> T | None:
        """The result of a read; None if it failed."""
        try:
            value = self._counted(request, read)
        except ProbeError as error:
            self.problems.append(error)
            wait = error.seconds if isinstance(error, ThrottledError) else 0.0
            retry_at = self._now + min(wait, MAX_WAIT_SECONDS)
            self._state.failures[request] = Failure(error.reason, error.message, retry_at)
            return None
        self._state.failures.pop(request, None)
        return value

    def _counted(self, request: str, call: Callable[[], T]) -> T:
        try:
            value = call()
        except kubelet.CallError as error:
            self._readings.increment(API_REQUESTS, 1, request, error.result)
            raise
        self._readings.increment(API_REQUESTS, 1, request, "ok")
        return value
