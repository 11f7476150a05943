"""What the probe `kubernetes` keeps from run to run and over restarts of the agent."""

from __future__ import annotations

from typing import Optional

import msgspec

from nodevitals.probe import ProbeError
from nodevitals.probes.kubernetes.cache import PodCache
from nodevitals.probes.kubernetes.devices import Node
from nodevitals.probes.kubernetes.messages import Accelerators, OomKills
from nodevitals.probes.kubernetes.oom import OomKillCounts
from nodevitals.probes.kubernetes.podresources import Container
from nodevitals.probes.kubernetes.pods import KnownNode
from nodevitals.wire import encode

# With the pods of the cache and the OOM kills it fits into a state, which may have 1 MiB.
MAX_CONTAINERS_BYTES = 192 * 1024
MAX_WAIT_SECONDS = 600.0


class Failure(msgspec.Struct, array_like=True):
    """Why a read failed, and the Unix time of the next attempt."""

    reason: str
    message: str
    retry_at: float

    def holds(self, now: float) -> bool:
        """Whether it is too early for another attempt; not after the clock was set back."""
        return 0 < self.retry_at - now <= MAX_WAIT_SECONDS

    def error(self) -> ProbeError:
        """As the run's error."""
        return ProbeError(self.reason, self.message)


class KubernetesState(msgspec.Struct):
    """The last answers, each with its Unix time. `answered`: the kubelet did so in this boot."""

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
        """This state if it is of that boot, or of one that could not be read; else a new one with
        the same accelerators.
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
        """Keep what the kubelet has listed for when it does not answer, unless it is too large."""
        fits = len(encode(containers)) <= MAX_CONTAINERS_BYTES
        if self.listed_at and fits:
            before, after = _devices(self.containers), _devices(containers)
            self.cache.changed |= {key for key in after if after[key] != before.get(key)}
            self.cache.changed &= set(after)
        self.answered = True
        self.containers, self.listed_at = (containers, now) if fits else ([], 0.0)


def _devices(containers: list[Container]) -> dict[str, set[tuple[str, ...]]]:
    """The devices of each pod, whatever their order: the kubelet has them in maps."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for one in containers:
        devices = found.setdefault(one.pod_key, set())
        devices.update((one.name, part.resource, name) for part in one.devices for name in part.ids)
        devices.update((one.name, part.driver, part.pool, part.device) for part in one.claims)
    return found
