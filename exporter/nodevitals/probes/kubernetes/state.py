"""What the probe `kubernetes` keeps from run to run and over restarts of the agent.

The pods of the node are limited in number and in bytes, because a pod's annotations may have any
size; omitted pods are counted. A pod that is gone is kept for a while: the kernel's log may still
name it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Optional

import msgspec

from nodevitals.probe import ProbeError
from nodevitals.probes.kubernetes.devices import Node
from nodevitals.probes.kubernetes.messages import Accelerators, OomKills
from nodevitals.probes.kubernetes.oom import OomKillCounts
from nodevitals.probes.kubernetes.podresources import Container
from nodevitals.probes.kubernetes.pods import KnownNode, KnownPod
from nodevitals.wire import encode

GONE_SECONDS = 900.0
# Part of the 1 MiB that the state of a probe may have.
MAX_BYTES = 384 * 1024
# A pod that is missing from so many reads waits for the next refresh: kubelets before 1.34 also
# list pods that were deleted.
MAX_READS = 3

# The list, the pods and the OOM kills together fit into a state of 1 MiB.
MAX_CONTAINERS_BYTES = 192 * 1024
MAX_WAIT_SECONDS = 600.0


class PodCache(msgspec.Struct):
    """The known pods. `reads`: the number of reads that did not contain a listed pod; `changed`:
    the pods whose devices have changed since the last read.
    """

    pods: list[KnownPod] = []
    read_at: float = 0.0
    dropped: int = 0
    names: dict[str, tuple[str, ...]] = {}
    reads: dict[str, int] = {}
    changed: set[str] = set()

    def by_key(self) -> dict[str, KnownPod]:
        """The pods by namespace and name; of several, the present one, or else the latest."""
        ordered = sorted(self.pods, key=lambda pod: pod.gone_at or math.inf)
        return {pod.key: pod for pod in ordered}

    def by_uid(self) -> dict[str, KnownPod]:
        """The pods by every uid under which the kernel's log may name them."""
        pods = {pod.static_uid: pod for pod in self.pods if pod.static_uid}
        return pods | {pod.uid: pod for pod in self.pods if pod.uid}

    def is_current(self, names: Mapping[str, tuple[str, ...]], now: float, refresh: float) -> bool:
        """Whether the pods were read recently and with this configuration."""
        return names == self.names and 0 <= now - self.read_at < refresh

    def wanted(self, keys: Iterable[str]) -> set[str]:
        """The pods that should be read: unknown pods, pods whose NPUs are not known yet, and pods
        that may have been replaced by others of the same name.
        """
        known = {pod.key for pod in self.pods if pod.npus != () and not pod.gone_at}
        known -= self.changed
        return {key for key in keys if key not in known and self.reads.get(key, 0) < MAX_READS}

    def update(
        self,
        present: Iterable[KnownPod],
        listed: AbstractSet[str],
        names: Mapping[str, tuple[str, ...]],
        now: float,
        max_pods: int,
    ) -> None:
        """Update the cache with the pods that were read; the `listed` pods, with devices, come
        first.
        """
        last = self.by_key()
        replaced = {pod.uid for pod in self.pods if pod.uid != last[pod.key].uid}
        # A server may answer with an older state than another one before.
        here = {pod.uid or pod.key: pod for pod in present if pod.uid not in replaced}
        gone = [pod for pod in self.pods if (pod.uid or pod.key) not in here]
        for pod in gone:
            pod.gone_at = pod.gone_at or now
        gone = [pod for pod in gone if 0 <= now - pod.gone_at < GONE_SECONDS]
        ordered = sorted(
            [*here.values(), *gone], key=lambda pod: (bool(pod.gone_at), pod.key not in listed)
        )
        self.pods = _fitting(ordered, max_pods)
        self.dropped = len(ordered) - len(self.pods)
        known = {pod.key for pod in here.values() if pod.npus != ()}
        self.reads = {key: self.reads.get(key, 0) + 1 for key in listed - known}
        self.names, self.read_at, self.changed = dict(names), now, set()


def _fitting(pods: list[KnownPod], max_pods: int) -> list[KnownPod]:
    kept, size = [], 0
    for pod in pods[:max_pods]:
        size += len(encode(pod))
        if size > MAX_BYTES:
            break
        kept.append(pod)
    return kept


class Failure(msgspec.Struct, array_like=True):
    """Why a read failed, and the Unix time of the next attempt."""

    reason: str
    message: str
    retry_at: float

    def holds(self, now: float) -> bool:
        """Whether it is too early for another attempt; False after the clock was set back."""
        return 0 < self.retry_at - now <= MAX_WAIT_SECONDS

    def error(self) -> ProbeError:
        """The failure as the error of a run."""
        return ProbeError(self.reason, self.message)


class KubernetesState(msgspec.Struct):
    """The last answers, each with its Unix time. `answered`: the kubelet has answered since
    boot.
    """

    boot_id: str = ""
    answered: bool = False
    containers: list[Container] = []
    listed_at: float = 0.0
    accelerators: Node = msgspec.field(default_factory=Node)
    cache: PodCache = msgspec.field(default_factory=PodCache)
    node: Optional[KnownNode] = None
    oom: OomKillCounts = msgspec.field(default_factory=OomKillCounts)
    failures: dict[str, Failure] = {}

    def in_boot(self, boot_id: str) -> KubernetesState:
        """This state if it belongs to that boot, or if the boot's identifier is unknown; else a new
        state with the same accelerators.
        """
        if not boot_id or self.boot_id in (boot_id, ""):
            self.boot_id = boot_id or self.boot_id
            return self
        return KubernetesState(boot_id=boot_id, accelerators=self.accelerators)

    def receive(self, message: Accelerators | OomKills, now: float) -> None:
        """Keep a vendor's accelerators, or let kills wait for their pods."""
        if isinstance(message, OomKills):
            self.oom.receive(message, now)
            return
        self.accelerators.uuids[message.vendor] = message.uuids
        if message.vendor == "nvidia":
            self.accelerators.gpus = message.gpus

    def listed(self, containers: list[Container], now: float) -> None:
        """Keep the kubelet's list for runs without an answer, unless it is too large."""
        fits = len(encode(containers)) <= MAX_CONTAINERS_BYTES
        if self.listed_at and fits:
            before, after = _devices(self.containers), _devices(containers)
            self.cache.changed |= {key for key in after if after[key] != before.get(key)}
            self.cache.changed &= set(after)
        self.answered = True
        self.containers, self.listed_at = (containers, now) if fits else ([], 0.0)


def _devices(containers: list[Container]) -> dict[str, set[tuple[str, ...]]]:
    """The devices of each pod as sets, because the kubelet lists them in any order."""
    devices_by_pod: dict[str, set[tuple[str, ...]]] = {}
    for container in containers:
        devices = devices_by_pod.setdefault(container.pod_key, set())
        devices.update(
            (container.name, part.resource, name) for part in container.devices for name in part.ids
        )
        devices.update(
            (container.name, part.driver, part.pool, part.device) for part in container.claims
        )
    return devices_by_pod
